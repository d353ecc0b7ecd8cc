// Package observe holds the observers of a training: console, metric files, TensorBoard, norms, timeline, bottlenecks, summary.
//
// Each implements train.Observer. [Watchers] lists those that the configuration asks for: a new one is a file here and a
// line there.
package observe
