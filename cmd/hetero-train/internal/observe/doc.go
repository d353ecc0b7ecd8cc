// Package observe contains the observers of a run: console, metrics files, TensorBoard, norms, timeline, bottlenecks,
// summary.
//
// Each observer implements train.Observer. [Watchers] returns the observers that the configuration selects. To add an
// observer, add a file to this package and a line to Watchers.
package observe
