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
// Each file uses only files below it in this list:
//
//	new.go          start of a replica
//	step.go         one optimizer step
//	evaluate.go     one batch of an evaluation
//	adopt.go        changes of shares and of ranks
//	prepare.go      plans for the next shares, which compile in the background
//	predictor.go    forward passes of a trained model
//	weights.go      parameters from other files
//	launches.go     launches of a step
//	trace.go        recording of steps
//	load.go         micro-batches of a step
//	enter.go        working copies and values that a pass needs
//	allocate.go     device memory at the start
//	limits.go       largest shares, and the first shares
//	peers.go        comparison of ranks, and copies between them
//	account.go      memory of a replica
//	footprint.go    memory and arithmetic of a share
//	initial.go      initial values of parameters and statistics
//	values.go       values of parameters and gradients, for callers
//	snapshot.go     state for checkpoints
//	statistics.go   running statistics of steps that do not complete
//	buckets.go      sums of gradients over ranks
//	exchange.go     exchange after the last bucket
//	last.go         smaller last micro-batch of an epoch
//	replica.go      type [Replica]
//	results.go      results of a step
//	clock.go        times of the parts of a step
//	feed.go         prefetched batches
//	fill.go         one batch in the inputs of a pass
//	tally.go        counts of predictions by class
//	fit.go          largest plans that fit
//	acquire.go      plans for a number of samples
//	compile.go      compilation, with layers that are recomputed
//	plancache.go    cache of plans
//	plans.go        passes for a number of samples
//	graph.go        graph of a pass
//	pass.go         one pass, with its memory
//	options.go      options
//	memoryerror.go  type [MemoryError]
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
