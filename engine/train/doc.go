// Package train contains the training loop. The loop reads batches, computes gradients, updates parameters,
// evaluates, and saves checkpoints. A [task.Task] defines what the model learns; the loop does not depend on images
// or text.
//
// [Run] trains a replica (package replica) on data until the run ends, saves and restores it, and reports events to an
// [Observer]. Package shares owns the division of a micro-batch among ranks.
//
// A run consists of parts (parts.go): progress counts steps, evaluator evaluates, saver writes checkpoints, comparer
// compares the ranks, divider changes shares, and consensus exchanges the measurements and requests of the ranks. The
// methods of run connect them.
//
// All random values (initial values, order of samples, augmentation, dropout) are functions of the seed alone. A run
// that is interrupted and resumed gives weights that are bit-equal to those of an uninterrupted run.
//
// # Several ranks
//
// Each rank trains its share of every micro-batch. The ranks exchange their reports about a step ([RankStep]) directly
// after the gradients, so they synchronize only once per step.
//
// A [Splitter] can change the shares during training. Each rank then compiles plans for its new share in the
// background, and all ranks switch at the same step.
//
// # Duties of the caller
//
// Observers and callbacks run on the training goroutine, so a slow one slows the run down.
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
