// Package nccl connects ranks on NVIDIA GPUs, through NCCL.
//
//	control := …                                       // a host communicator (shm, gloo or hosts), wrapped by package staged
//	comm, err := nccl.Connect(ctx, nccl.Config{Control: control, Device: gpu, Timeout: limit, MaxCTAs: 16})
//
// # Two data paths
//
// NCCL transfers GPU memory, on a stream of the communicator. [Config].Control, a host communicator, transfers host
// memory. Control also performs Max and Min of floating-point numbers, because NCCL's Max and Min lose NaN, which the
// contract of package collective forbids. If all parts have the same size, all-gather and reduce-scatter use NCCL's own
// operations. Otherwise they use a group of broadcasts or reductions.
//
// Control also exchanges information that NCCL does not provide:
//
//   - As soon as an operation is enqueued, the ranks exchange its description. A mismatch is therefore detected before
//     NCCL starts; NCCL itself would hang or corrupt memory.
//   - Control reports which rank ended, aborted or closed, and the cause.
//   - When ranks join, Control exchanges NCCL's unique id, versions and GPUs.
//
// # Course of an operation
//
// The communicator's own OS thread waits for After, calls NCCL, polls CUDA and NCCL for the state of the operation, and
// completes Done. Programs on the GPU wait for Done without the host, because events of package native are words in
// page-locked memory. No call to NCCL blocks, because the NCCL communicator is created with blocking = 0.
//
// Each program is still launched as one CUDA graph. NCCL's kernels are launched separately and are not captured in the
// graph, for three reasons. A captured collective could not be stopped when a rank ends. It would also tie every plan
// to one communicator. A change of shares would require new graphs on all ranks.
//
// The stream also does not wait for After on the GPU: a collective that waits there for an event that never completes
// could not be aborted. Instead, the communicator's thread polls the event and then launches the collective. This costs
// some microseconds per operation. Transfers of other buckets hide this cost, except for the last bucket.
//
// MaxCTAs limits the number of multiprocessors that NCCL takes from the backward pass. NCCL's stream has the highest
// priority, so that NCCL's blocks start before other waiting blocks.
//
// # Bit-equal results
//
// NCCL chooses the order of reduction (rings, trees, switches). The order is the same in every run with the same ranks,
// GPUs, version and settings, and results are bit-equal on all ranks. They are not bit-equal to the results of the host
// communicators. NCCL may round sums of bf16 at every hop; use f32 for a single rounding.
//
// # Failure
//
// Failures follow the contract of package collective. If an operation fails, ncclCommAbort removes it from the GPU
// before Done completes. A time-out before the call of NCCL names the ranks that did not enqueue the operation. A
// time-out within NCCL cannot name the late rank. If no time-out is set, an operation may hang within NCCL while all
// ranks are running; it then ends only when a rank aborts. NCCL has ten seconds to abort. After that, NCCL's threads
// and memory are leaked, and Close returns an error that reports the leak.
//
// # Settings
//
// NCCL reads NCCL_* from the environment when it is opened. [Settings] contains only permitted variables. None of these
// makes NCCL load code or write files.
//
// # The library
//
// libhetero_nccl.so is built if a CUDA toolkit and nccl.h are found. Package nativelib describes the search for this
// library. The library opens libnccl.so.2, and searches for it in the same places as for CUDA's libraries
// (HETERO_CUDA_LIBS, toolkits, Python packages). If this fails, [Available] returns the reason. shim/ contains a fake
// NCCL for tests.
//
// # Trust
//
// NCCL's connections are neither authenticated nor encrypted. Use them only in a network that contains only the hosts
// of the job.
package nccl
