// Package gradsync computes one exact gradient from many ranks: bucketed all-reduce that overlaps the backward pass,
// batch statistics over all ranks' samples, and checks that ranks hold the same state.
//
// # The sum
//
// Every rank runs its share of the global micro-batch. graph.Differentiate divides the loss of each sample by the
// GLOBAL batch size, so the gradients of ranks are summed, never averaged. The result is the single-device gradient for
// any shares, including zero.
//
// The sum is a list of all-reduces over buckets, which are ranges of the flat gradient buffer. Gradients are in the
// order in which the backward pass completes them. The all-reduce of a bucket starts as soon as its last gradient is
// written, during the backward pass. The only wait is [Sync.Finish], before the optimizer.
//
// # Use
//
//	same, err := gradsync.SameLayouts(ctx, comm, dev, first.Params()) // once; if not, first = plan.CompilePlain(…) on all ranks
//	s, err := gradsync.New(cache, state, into, gradsync.Options{…}) // once; the optimizer reads into
//	pass, err := s.Bind(p, arena)                    // each plan, also that of plan.CompileIdle for a share of 0
//	err = gradsync.Compare(ctx, comm, dev, s.Fingerprint(p)) // once: all ranks must have the same model and buckets
//
//	err = s.SetShares(samples)                       // samples of the micro-batch for each rank; after each change
//	err = pass.Forward(stream)                       // each micro-batch, instead of plan.Forward
//	err = pass.Backward(stream, last)                // instead of plan.Backward; last: last micro-batch of the optimizer step
//	times, err := s.Finish(ctx, stream, reports)     // before the optimizer; reports follow the last bucket
//
// With several micro-batches per step, into is a buffer different from state.Grads. The caller adds the gradients of
// all micro-batches except the last to it. The last backward pass adds its own gradients to into before the
// all-reduces.
//
// # Batch normalisation
//
//   - Statistics over all ranks' samples (nn.Net.Sync): the passes stop at exchanges of two vectors per layer. A second
//     communicator ([Options].Stats) carries these exchanges, so they never queue behind a bucket. A rank with a share
//     of 0 takes part.
//   - Statistics over the rank's own samples, or over fixed groups of samples: the passes exchange nothing. Each rank
//     updates its own running statistics. Once per step, during the backward pass, an all-reduce averages them with the
//     shares as weights ([Options].AverageStates). The average is exact because the update is linear: with groups it
//     equals the statistics of a single rank. Afterwards all ranks hold the same bits.
//
// # On the wire
//
// Options.Wire bf16 halves the bytes. A bucket is rounded into a separate buffer, the communicator sums it in f32 and
// rounds the sum once, and Finish widens it. Every rank still gets the same bits.
//
// # Buckets
//
// [ByCap] fills buckets up to a size; a smaller limit for the first bucket starts communication early. [Tune] measures:
// it takes the time at which each gradient is ready from a timed backward pass, and the latency and bandwidth of an
// all-reduce from the communicator. Both are those of the slowest rank. Tune returns the bucket ends with which the
// last all-reduce ends first ([Choose]).
//
// # Duties of the caller
//
// One goroutine at a time, the one that trains, uses a Sync and its passes. All ranks make the same calls in the same
// order.
//
// # Errors
//
// Forward, Backward and Finish return the errors of communicators (package collective). The gradients are then invalid.
// If the passes of this rank fail, Abort sends the cause to the other ranks. [DifferenceError] from Compare and
// [ReplicaError] from Replicas name the ranks that differ.
package gradsync
