// Package replica is one model on one device: its plans, parameters, optimizer and averages. It does not depend on the
// training loop, on checkpoint folders or on balancing policies.
//
//   - [Replica.Step] runs one optimizer step. Runs, golden tests and benchmarks use this one sequence.
//   - [Replica.Evaluate] runs one batch of an evaluation.
//   - [Predictor] runs forward passes of a trained model, without gradients and optimizer state.
//
// A [task.Task] defines what the model learns; the package does not depend on images or text.
//
// # Several ranks
//
// [Peers] connects the replicas of a process group. Each rank trains its share of every micro-batch, and an all-reduce
// sums the gradients. An [Exchange] directly follows the last bucket of gradients, so ranks synchronize once per step.
//
// New finds the largest share that fits into the memory of each rank. Peers.Divide then chooses the first shares.
// Replica.Shares returns the owner of the shares, and Replica.Group the ranks. The replica reads both in each step, and
// keeps plans of recently used shares in a cache.
//
// # Files
//
// The files form layers. A file uses only files of lower layers, or files of its own layer that do not use it:
//
//	new, step, evaluate, adopt, prepare, predictor     entry points
//	allocate, limits, buckets, load, enter, last       stages of the start and of a step
//	account, footprint, initial, snapshot, statistics  memory of a replica, and its contents
//	replica                                            type Replica
//	results, feed, tally, clock                        results, batches, counts and times of a step
//	fit, acquire, compile, plancache, plans            plans for shares
//	graph, fill, pass, options                         one pass, and the options
//
// # Duties of the caller
//
// Only one goroutine at a time may use a replica, locked to its OS thread while it trains. The caller closes the
// replica before its device. Neither a replica nor its caller changes Options after New.
//
// # Errors
//
//   - a *[MemoryError] if the activations do not fit into the memory of the device
//   - [ErrDiverged] if a predictor computes values that are NaN or infinite
//   - errors of the device, and of communicators (package collective)
package replica
