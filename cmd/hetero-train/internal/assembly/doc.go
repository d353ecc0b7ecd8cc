// Package assembly assembles the parts of a training from its configuration.
//
// A [Run] embeds a rank and adds data, model, schedule and folder. A command opens only the parts that it needs:
// training opens all of them, plan opens no data. The package also decides whether a run may resume from a checkpoint.
package assembly
