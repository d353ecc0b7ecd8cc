// Package task defines the interface of tasks. A [Task] determines what a replica learns: it builds the graph that
// computes one loss per target from the inputs of a batch.
//
// The training loop does not depend on images or text. It copies the fields of a batch to the graph inputs with the
// same names. It divides the sum of the losses by the number of targets, and reports the metrics of the task.
//
// Package engine/task/images implements image classification. Package engine/task/language implements the prediction
// of tokens.
//
// # Targets
//
// A sample has Task.Targets targets: one for a classified image, one for each position of a text. A target with a label
// below 0 does not count, and its loss is 0. Means are sums divided by the number of targets that count, over all ranks
// and micro-batches of a step.
//
// If Report.SampleTarget is set, each sample also has one further target, which always counts. The loss is then the
// mean over the targets of the first kind plus the mean over the further targets.
package task
