// Package collective is the contract between the engine and whatever moves data between ranks: goroutines of one
// process (package local), shared memory of one host (package shm), Gloo between hosts (package gloo), these two together
// (package hosts), or NCCL between GPUs (package nccl of this module). Package staged puts any of the former behind a GPU.
//
// # Use
//
// A [Communicator] is one rank's end. Operations are plain data ([AllReduce], [Broadcast], [AllGather], [ReduceScatter],
// [Barrier]). Enqueue hands one over and returns at once; the communicator's own OS thread runs them one after the other
// in the order of Enqueue (package hosts: in stages, each in that order). Every rank enqueues the same operations in the same order, each with memory of its own.
//
//	op := collective.AllReduce{Name: "bucket 0", Buffer: region, DType: tensor.F32, After: ready, Done: reduced}
//	err := comm.Enqueue(op) // ready: recorded by the program that writes the buffer; reduced: waited for by the one that reads it
//	…
//	err = comm.Err()        // whoever waited for reduced asks before it trusts the values
//
// An operation starts when After is complete, touches no memory of its buffer before, and completes Done when the
// result stands in the buffer. Events of the step before are taken back by device.Event.Reset before they are used
// again. A caller that keeps the Op value (the interface, not the struct) from step to step makes Enqueue allocate nothing.
//
// # Same bits everywhere
//
// Values are reduced in an order that is fixed by where ranks are, whatever arrives first: as a rule that of ranks,
// ((x0 + x1) + x2) + …; in package hosts those of a host first, (x0 + x1) + (x2 + x3). Sums of bf16 are accumulated in
// f32 and rounded once, to nearest even; in package hosts once within a host and once between hosts. NCCL takes an order of its
// own, that of its rings and trees, and may round bf16 at every hop. Every rank receives
// the same bits, and two runs with ranks in the same places give the same bits. Sums of integers wrap. Max and Min keep
// the earlier of equal values, and a NaN wins over every number, so that a rank that has diverged is seen.
//
// # Failure
//
// The first failure ends a communicator: nothing runs any more, Enqueue refuses, and the Done events of all that was queued are
// completed, so that no program hangs; Err then tells what happened, the same for everybody who asks:
//
//   - [PeerError]: another rank died, left or gave up; it names the rank and the cause;
//   - [TimeoutError]: an operation waited too long; it names who has not entered it;
//   - [MismatchError]: ranks enqueued different operations;
//   - [ErrAborted]: Abort was called here; it wraps the cause;
//   - the error of an After event whose program failed.
//
// A rank that fails tells the others, which fail with a PeerError at once, not when their time is over. Nothing can be
// reused after a failure but Err and Close; survivors make another communicator.
//
// # Duties of the caller
//
// Enqueue, Sync and Close are called by one goroutine at a time, Err and Abort by any. Buffers and events outlive the
// operations that name them: Sync, or a completed Done, says that they are free. Every communicator is closed.
package collective
