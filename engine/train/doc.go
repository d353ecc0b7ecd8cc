// Package train contains the training loop. The loop reads batches, computes gradients, updates parameters,
// evaluates, and saves checkpoints. A [task.Task] defines what the model learns; the loop does not depend on images
// or text.
//
//   - A [Replica] is one model on one device, with its plans, parameters and optimizer. Replica.Step runs one optimizer
//     step (step.go). Replica.Evaluate runs one batch of an evaluation.
//   - [Run] trains a replica on data until the run ends, saves and restores it, and reports events to an [Observer].
//
// All random values (initial values, order of samples, augmentation, dropout) are functions of the seed alone. A run
// that is interrupted and resumed gives the same bits as an uninterrupted run.
//
// # Several ranks
//
// [Peers] connects the replicas of a process group. Each rank trains its share of every micro-batch, and an
// all-reduce sums the gradients. The ranks exchange their reports about a step ([RankStep]) directly after the
// gradients ([Exchange]). The ranks therefore synchronize only once per step.
//
// NewReplica finds the largest share that fits into the memory of each rank. Peers.Divide then chooses the first
// shares. A [Splitter] can change the shares during training. Each rank then compiles plans for its new share in the
// background, and all ranks switch at the same step. A cache keeps the plans of recently used shares. Package shares
// owns the shares; Replica.Shares returns their owner.
//
// # Duties of the caller
//
// Only one goroutine at a time may use a replica. The caller closes the replica before its device. Observers and
// callbacks run on the training goroutine, so a slow one slows the run down.
//
// # Errors
//
// Run returns the error that ended the run. Its chain contains
//
//   - [ErrDiverged] if gradients stayed NaN or infinite
//   - a *data.Fault if the data cannot be read
//   - a *checkpoint.IOError if the final save failed
//   - device.ErrDevice if the device failed
//
// A cancelled context is not an error. Run finishes the current step, saves a checkpoint, and sets Result.Interrupted.
package train
