// Package task defines what a replica learns. A [Task] builds the graph from the inputs of a batch to one loss per
// target.
//
// The training loop does not depend on images or text. It copies the fields of a batch to the graph inputs with the
// same names. It divides the sum of the losses by the number of targets, and reports the metrics that the task names.
//
// Package engine/task/images contains the classification of images. Package engine/task/language contains the
// prediction of tokens.
//
// # Targets
//
// A sample has Task.Targets targets: one for a classified image, one for each position of a text. A target whose label
// is below 0 is ignored: its loss is 0. Means divide by the number of other targets, over all ranks and micro-batches
// of a step.
package task
