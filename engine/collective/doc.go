// Package collective defines the contract between the engine and the implementations that move data between ranks. The
// implementations are package local (goroutines of one process), package shm (shared memory of one host), package gloo
// (several hosts), package hosts (shm within hosts and gloo between them), and package nccl of this module (GPUs).
// Package staged lets each of the other implementations transfer GPU memory.
//
// # Use
//
// A [Communicator] is one rank's endpoint in a group. Operations are plain data ([AllReduce], [Broadcast], [AllGather],
// [ReduceScatter], [Barrier]). Enqueue adds an operation to a queue and returns at once. The communicator's own OS
// thread runs the operations one by one, in the order of Enqueue. (Package hosts runs each operation in stages, and
// keeps this order within each stage.) Every rank enqueues the same operations in the same order, and each rank passes
// its own memory.
//
//	op := collective.AllReduce{Name: "bucket 0", Buffer: region, DType: tensor.F32, After: ready, Done: reduced}
//	err := comm.Enqueue(op) // the program that writes the buffer records ready; the program that reads it waits for reduced
//	…
//	err = comm.Err()        // check the error after waiting for reduced, before using the values
//
// An operation starts when its After event is complete, and does not touch its buffer earlier. It completes Done when
// the buffer contains the result. Call device.Event.Reset before you reuse an event. Enqueue allocates nothing if the
// caller reuses the Op value (the interface, not the struct) in every step.
//
// # Same bits everywhere
//
// The order of a reduction depends only on where the ranks run, never on the order in which ranks arrive. Most
// implementations reduce in the order of ranks: ((x0 + x1) + x2) + …. Package hosts first reduces within each host:
// (x0 + x1) + (x2 + x3). Sums of bf16 are accumulated in f32 and rounded once, to nearest even. Package hosts rounds
// bf16 sums once within a host and once between hosts. NCCL uses the order of its rings and trees, and may round bf16
// at every hop.
//
// Every rank receives the same bits. Two runs whose ranks run on the same hosts and devices give the same bits. Sums of
// integers wrap around. Of two equal values, Max and Min keep the value that comes first in the order of reduction. For
// Max and Min, a NaN wins over every number, so that a rank that has diverged is visible.
//
// # Failure
//
// The first failure ends a communicator. The communicator completes the Done events of all queued operations, so that
// no program hangs. It runs no further operation, and Enqueue returns an error. From then on Err returns the first
// failure:
//
//   - [PeerError]: another rank died, left or aborted; the error names the rank and the cause
//   - [TimeoutError]: an operation exceeded its time limit; the error names the ranks that have not entered it
//   - [MismatchError]: the ranks enqueued different operations
//   - [ErrAborted]: Abort was called on this rank; the error also wraps the cause that Abort was given
//   - the error of an After event whose program failed
//
// A rank that fails notifies the others. They fail at once with a PeerError, without waiting for their time limits.
// After a failure only Err and Close may be used; the remaining ranks must create another communicator.
//
// # Duties of the caller
//
// At any time, at most one goroutine may call Enqueue, Sync or Close. Any goroutine may call Err and Abort. Buffers and
// events must stay valid until their operations end: until Sync returns or the Done event is complete. Every
// communicator must be closed.
package collective
