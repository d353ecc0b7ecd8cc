// Package gradsync makes one exact gradient of many ranks: buckets, overlap with the backward pass, statistics over all ranks'
// samples, and the proof that ranks do the same.
//
// # The sum
//
// Every rank runs its share of the global micro-batch. The loss of each sample is divided by the GLOBAL batch size (the factor that
// graph.Differentiate reads), so gradients of ranks are summed, never averaged: the result is the single-device gradient whatever
// the shares are, zero included. The sum is a list of all-reduces over buckets, ranges of the flat gradient buffer, which
// lies in the order in which the backward pass finishes gradients. A bucket's all-reduce starts as soon as its last gradient is
// written, while the backward pass goes on; the only wait is [Sync.Finish], before the optimizer.
//
// # Use
//
//	same, err := gradsync.SameLayouts(ctx, comm, dev, first.Params()) // once; if not, first = plan.CompilePlain(…) on all ranks
//	s, err := gradsync.New(cache, state, into, gradsync.Options{…}) // once; into is what the optimizer reads
//	pass, err := s.Bind(p, arena)                    // each plan, also that of plan.CompileIdle for a share of 0
//	err = gradsync.Compare(ctx, comm, dev, s.Fingerprint(p)) // once: all ranks must have the same model and buckets
//
//	err = s.SetShares(samples)                       // how many samples of the micro-batch each rank has; when that changes
//	err = pass.Forward(stream)                       // each micro-batch, instead of plan.Forward
//	err = pass.Backward(stream, last)                // and plan.Backward; last: of the optimizer step
//	times, err := s.Finish(ctx, stream, reports)     // before the optimizer; what else ranks tell each other goes along
//
// With several micro-batches a step, into is a sum beside state.Grads: the caller adds all but the last, whose buckets the backward
// pass itself adds before they are sent.
//
// # Batch normalisation
//
// Three modes. Statistics over all ranks' samples (nn.Net.Sync): the passes stop at exchanges of two vectors a layer, which another
// communicator carries ([Options].Stats), so that they never queue behind a bucket. A rank of share 0 takes part. Statistics over
// the rank's own samples, or over fixed groups: nothing is exchanged in the passes; running statistics, of which every rank
// has moved its own, are averaged with the weights of the shares once a step ([Options].AverageStates), under the backward pass. That
// is exact, since they move linearly: for groups it is what one rank would hold. All ranks hold the same bits afterwards.
//
// # On the wire
//
// Options.Wire bf16 halves the bytes: a bucket is rounded into a buffer of its own, summed in f32 and rounded once by
// the communicator, and widened again in Finish. Every rank still gets the same bits.
//
// # Buckets
//
// [ByCap] fills buckets up to a size, the first one being small, so that communication starts early. [Tune] measures: it takes the time at which
// each gradient is ready from a timed backward pass and the latency and bandwidth of an all-reduce from the communicator, both of the slowest rank, and
// finds the boundaries with which the last all-reduce ends first ([Choose]).
//
// # Errors
//
// What a communicator fails with (package collective) comes out of Forward, Backward and Finish; gradients are worthless then and must not
// be used. A failure of this rank's own passes is told to the others by Abort. [DifferenceError] from Compare and
// [ReplicaError] from Replicas name the rank that is not like the others.
//
// A Sync and its passes are used by one goroutine at a time, the one that trains.
package gradsync
