// Package assembly builds the components of a training run from its configuration.
//
// A [Run] has a [compute.Rank] and adds the data, the model, the schedule and the folder of the run. A command opens
// only the components that it needs: command train opens all of them, command plan opens no data. The package also
// decides whether a run may resume from a checkpoint.
package assembly
