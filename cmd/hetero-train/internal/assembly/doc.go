// Package assembly assembles the parts of a training from its configuration.
//
// A [Run] embeds a rank and adds data, model, schedule and folder. A command opens the parts that it needs: training opens
// all of them, plan opens none of the data. The package also decides what a run may resume from.
package assembly
