// Package collective defines the contract between the engine and the implementations that transfer data between ranks:
//
//   - package local: goroutines of one process
//   - package shm: shared memory of one host
//   - package gloo: several hosts
//   - package hosts: shm within hosts and gloo between them
//   - package nccl (in the folder nccl of this module): GPUs
//
// Package staged lets the host communicators transfer GPU memory.
//
// # Use
//
// A [Communicator] is one rank's endpoint in a group. Operations are plain data ([AllReduce], [Broadcast], [AllGather],
// [ReduceScatter], [Barrier]). Enqueue adds an operation to a queue and returns immediately. The communicator's own OS
// thread runs the operations one by one, in the order of Enqueue. (Package hosts runs each operation in stages, and
// keeps the order within each stage.) Every rank must enqueue the same operations in the same order. Each rank passes
// its own memory.
//
//	op := collective.AllReduce{Name: "bucket 0", Buffer: region, DType: tensor.F32, After: ready, Done: reduced}
//	err := comm.Enqueue(op) // a program writes the buffer and records ready; another one waits for reduced and reads it
//	…
//	err = comm.Err()        // check this after the wait for reduced, before using the values
//
// An operation starts when its After event is complete, and does not access its buffer earlier. When the buffer
// contains the result, the operation completes Done. The caller must call device.Event.Reset before reusing an event.
// Enqueue allocates nothing if the caller reuses the same Op value in every step (the interface value, not only the
// struct).
//
// # Bit-equal results
//
// The order of a reduction depends only on the placement of the ranks, never on the order in which ranks arrive. Most
// implementations reduce in the order of ranks: ((x0 + x1) + x2) + …. Package hosts first reduces within each host:
// (x0 + x1) + (x2 + x3). Sums of bf16 are accumulated in f32 and rounded once, to nearest even. Package hosts rounds
// bf16 sums once within a host and once between hosts. NCCL uses the order of its rings and trees, and may round bf16
// at every hop.
//
// Results are bit-equal on all ranks. Two runs whose ranks use the same hosts and devices also give bit-equal results.
// Sums of integers wrap around. Of two equal values, Max and Min keep the value that comes first in the order of
// reduction. If a value is NaN, the result of Max and Min is NaN, so that divergence on one rank is visible on all
// ranks.
//
// # Failure
//
// The first failure ends a communicator. The communicator completes the Done events of all queued operations, so that
// no program hangs. It runs no further operation, and Enqueue returns an error. Err then returns the first failure:
//
//   - [PeerError]: another rank died, left or aborted; the error names the rank and the cause
//   - [TimeoutError]: an operation exceeded its time limit; the error names the ranks that have not entered it
//   - [MismatchError]: the ranks enqueued different operations
//   - [ErrAborted]: Abort was called on this rank; the error also wraps the cause that Abort was given
//   - the error of an After event whose program failed
//
// A rank that fails notifies the other ranks. They fail immediately with a PeerError, without waiting for their time
// limits. After a failure, only Err and Close may be called. The remaining ranks must create another communicator.
//
// # Duties of the caller
//
// Enqueue, Sync and Close are not safe for concurrent use; Err and Abort are. Buffers and events must remain valid
// until their operations end, that is, until Sync returns or the Done event is complete. Every communicator must be
// closed.
package collective
