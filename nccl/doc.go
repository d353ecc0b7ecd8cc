// Package nccl connects ranks on NVIDIA GPUs, through NCCL.
//
//	control := …                                       // a communicator of the host: packages shm, gloo, hosts, behind staged
//	comm, err := nccl.Connect(ctx, nccl.Config{Control: control, Device: gpu, Timeout: limit, MaxCTAs: 16})
//
// # Two data paths
//
// GPU memory is transferred by NCCL, on a stream of the communicator. Host memory is transferred by Control. Control
// also performs the operations for which NCCL does not satisfy the contract of package collective: Max and Min of real
// numbers, where NCCL loses NaN. If all parts have the same size, all-gather and reduce-scatter use NCCL's own
// operations. Otherwise they use a group of broadcasts or reductions.
//
// Control also exchanges information that NCCL does not provide:
//
//   - As soon as an operation is enqueued, the ranks exchange its description. A mismatch is therefore found before
//     NCCL starts; NCCL would hang or corrupt memory.
//   - Control reports which rank died, aborted or closed, and the cause.
//   - When ranks join, Control exchanges NCCL's unique id, versions and GPUs.
//
// # Course of an operation
//
// The communicator's own OS thread waits for After, calls NCCL, polls CUDA and NCCL for the state of the operation, and
// completes Done. Programs on the GPU wait for Done without the host: events of package native are words in page-locked
// memory. No call blocks, because the NCCL communicator is created with blocking = 0.
//
// A program remains one graph launch; NCCL's kernels are launched separately and are not captured in the graph. A
// captured collective could not be stopped when a rank dies, would tie every plan to one communicator, and would make a
// change of shares require new graphs on all ranks. The stream does not wait for After on the GPU for a similar reason:
// a collective behind a word that is never written could not be aborted. The cost is the time until the thread sees the
// word and launches, some microseconds per operation. It is hidden by the transfer of the other buckets, except for the
// last bucket.
//
// MaxCTAs limits the multiprocessors that NCCL takes from the backward pass. NCCL's stream has the highest priority, so
// that its blocks start at once.
//
// # Same bits everywhere
//
// NCCL reduces in an order of its own (rings, trees, switches). The order is the same in every run with the same ranks,
// GPUs, version and settings, and all ranks receive the same bits. They differ from those of the host communicators.
// NCCL may round sums of bf16 at every hop; use f32 for a single rounding.
//
// # Failure
//
// Failures follow package collective. If an operation ends early, ncclCommAbort removes it from the GPU before Done is
// completed. A time-out before the call of NCCL names the ranks that did not enqueue; a time-out within NCCL cannot
// name the late rank. Without a time-out, an operation that hangs within NCCL while all ranks live ends only when a
// rank aborts. NCCL has ten seconds to abort; after that its threads and memory are leaked, and Close reports it.
//
// # Settings
//
// NCCL reads NCCL_* from the environment when it is opened. [Settings] contains only permitted variables: none that
// loads code or writes files.
//
// # The library
//
// libhetero_nccl.so is built if a CUDA toolkit and nccl.h are found. Package nativelib describes the search for it. It
// opens libnccl.so.2, which it searches like CUDA's other libraries (HETERO_CUDA_LIBS, toolkits, Python packages).
// [Available] returns the reason if this fails. shim/ contains a fake NCCL for tests.
//
// # Trust
//
// NCCL's connections are neither authenticated nor encrypted. Use them only in a network that contains only the hosts
// of the job.
package nccl
