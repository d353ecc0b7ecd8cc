// Package gradsync sums the gradients of all ranks exactly. A bucketed all-reduce overlaps the backward pass. The
// package also computes batch statistics over the samples of all ranks, and checks that all ranks have the same state.
//
// # The sum
//
// Every rank processes its share of the global micro-batch. graph.Differentiate divides the loss of each sample by the
// GLOBAL batch size, so the gradients of ranks are summed, never averaged. The result equals the gradient of a single
// device for any shares, including shares of 0.
//
// The sum is computed by one all-reduce per bucket; a bucket is a range of the flat gradient buffer. The buffer holds
// the gradients in the order in which the backward pass completes them. The all-reduce of a bucket starts during the
// backward pass, as soon as the bucket's last gradient is written. The only wait is in [Sync.Finish], before the
// optimizer.
//
// # Use
//
//	same, err := gradsync.SameLayouts(ctx, comm, dev, first.Params()) // once; if false, all ranks set first = plan.CompilePlain(…)
//	s, err := gradsync.New(cache, state, into, gradsync.Options{…}) // once; the optimizer reads into
//	pass, err := s.Bind(p, arena)                    // once per plan, also for the plan of plan.CompileIdle (share 0)
//	err = gradsync.Compare(ctx, comm, dev, s.Fingerprint(p)) // once: all ranks must have the same model and buckets
//
//	err = s.SetShares(samples)                       // samples of each rank per micro-batch; call it after each change
//	err = pass.Forward(stream)                       // each micro-batch, instead of plan.Forward
//	err = pass.Backward(stream, last)                // instead of plan.Backward; last: last micro-batch of the optimizer step
//	times, err := s.Finish(ctx, stream, reports)     // before the optimizer; exchanges reports after the last bucket
//
// If ranks join or leave between two steps, the caller calls [Group.Change], then SetShares with the shares of the new
// ranks. Plans whose passes exchange statistics contain the ranks, so the caller compiles and binds them again.
//
// With several micro-batches per step, the buffer passed as into must differ from state.Grads. The caller adds the
// gradients of all micro-batches except the last to this buffer. The last backward pass adds its own gradients to the
// buffer before the all-reduces.
//
// # Batch normalisation
//
//   - Statistics over all ranks' samples (nn.Net.Sync): each pass exchanges two vectors per layer with the other ranks
//     and waits for the result. A second communicator ([Group].Stats) carries these exchanges, so they never queue
//     behind a bucket. A rank with a share of 0 takes part in the exchanges.
//   - Statistics over the rank's own samples, or over fixed groups of samples: the passes exchange nothing. Each rank
//     updates its own running statistics. Once per step, during the backward pass, an all-reduce averages the running
//     statistics with the shares as weights ([Options].AverageStates). The average is exact, because the update is
//     linear: with groups, it equals the statistics of a single rank. Afterwards, the running statistics are bit-equal
//     on all ranks.
//
// # On the wire
//
// If Options.Wire is bf16, half as many bytes are sent. Each bucket is rounded to bf16 in a separate buffer. The
// communicator accumulates the sum in f32 and rounds it once. Finish converts the sum back to f32. All ranks still
// receive bit-equal sums.
//
// # Buckets
//
// [ByCap] fills buckets up to a given size. A smaller limit for the first bucket lets communication start early. [Tune]
// chooses the buckets from measurements. A timed backward pass gives the time at which each gradient is ready. Timed
// all-reduces give latency and bandwidth. All these times are those of the slowest rank. Tune returns the bucket ends
// for which the last all-reduce would end earliest ([Choose]).
//
// # Duties of the caller
//
// Only the goroutine that trains may use a Sync and its passes. All ranks must make the same calls in the same order.
//
// # Errors
//
// Forward, Backward and Finish return the errors of communicators (package collective). After an error the gradients
// are invalid. If a pass of this rank fails, call Abort to send the cause to the other ranks. [DifferenceError] from
// Compare and [ReplicaError] from Replicas name the ranks that differ.
package gradsync
