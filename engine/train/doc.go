// Package train is the loop: batches in, gradients, updates, evaluations, checkpoints.
//
//   - A [Replica] is one model on one device: plans, parameters, optimizer. Replica.Step is one optimizer step
//     (step.go), Replica.Evaluate one batch of an evaluation.
//   - [Run] drives a replica over data to the end of a run, saves and restores it, and tells an [Observer] what happens.
//
// What is random (initial values, order of samples, augmentation, dropout) is a function of the seed alone; a
// run that is interrupted and resumed is bit-equal to one that is not.
//
// # Several ranks
//
// [Peers] join replicas. Each trains its share of every micro-batch; gradients are summed over ranks, and what ranks tell each other
// about a step ([RankStep]) goes along, so that they meet once a step. NewReplica finds the most samples that fit into each rank's
// memory (Replica.Limits) before Peers.Divide says who has how many. A [Splitter] changes that while training goes on: each rank plans for
// its new share beside training, and all change at the same step. Plans of the last shares are kept.
//
// # Errors
//
// Run returns the error that ended the run: [ErrDiverged] in the chain when gradients stayed NaN or infinite,
// a *data.Fault for the data, *checkpoint.IOError when the final save failed, device.ErrDevice for the
// device. A cancelled context is no error: the step is finished, saved, and Result.Interrupted is set.
package train
