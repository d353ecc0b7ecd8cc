// Package assembly assembles the parts of a training from its configuration.
//
// A [Run] embeds a [compute.Rank] and adds the data, the model, the schedule and the run's folder. A command opens only
// the parts that it needs: command train opens all of them, command plan opens no data. The package also decides
// whether a run may resume from a checkpoint.
package assembly
