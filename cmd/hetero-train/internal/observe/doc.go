// Package observe contains the observers of a training: console, metric files, TensorBoard, norms, timeline,
// bottlenecks, summary.
//
// Each implements train.Observer. [Watchers] lists the observers that the configuration selects. To add one, add a file
// here and a line there.
package observe
