// Package nccl connects ranks on NVIDIA GPUs, through NCCL.
//
//	control := …                                       // a communicator of the host: packages shm, gloo, hosts, behind staged
//	comm, err := nccl.Connect(ctx, nccl.Config{Control: control, Device: gpu, Timeout: limit, MaxCTAs: 16})
//
// # Two ways for the data
//
// Memory of the GPU goes through NCCL, on a stream of the communicator's own. Memory of the host goes through Control, and so does what NCCL
// does not do as package collective promises: the largest and smallest of real numbers, where NCCL loses NaN. Parts of one size are NCCL's
// own all-gather and reduce-scatter, parts of several sizes a group of broadcasts or reductions.
//
// Control also carries what NCCL knows nothing of. As soon as an operation is enqueued the ranks exchange what they are about to do, long
// before its turn, so a mismatch is found before NCCL, which would hang or mix up memory, hears of it. Who died, gave up or closed, and why,
// is told by Control; and NCCL's unique id, versions and GPUs are exchanged through it when ranks join.
//
// # How an operation goes
//
// The communicator's own OS thread waits for After, calls NCCL, asks CUDA and NCCL how the operation goes, and completes Done: programs
// on the GPU wait for that without the host (package native's events are words in page-locked memory). No call blocks: the NCCL
// communicator is made with blocking = 0. A program stays one graph launch; NCCL's kernels are launched beside it and not captured into it,
// because a captured collective could neither be stopped nor given up when a rank dies, would tie every plan to one communicator, and
// would make changing shares a matter of all ranks' graphs. For the same reason the stream does not wait for After by itself: a collective
// behind a word that is never written could not be aborted. The price is the time in which the thread sees the word and launches, some
// microseconds an operation, of which the bytes of a bucket hide all but the last.
//
// MaxCTAs bounds the multiprocessors that NCCL takes from the backward pass; its stream has the highest priority, so that what it takes it gets
// at once.
//
// # Same bits everywhere
//
// NCCL reduces in an order of its own (rings, trees, switches), the same on every run with the same ranks, GPUs, version and settings, and all
// ranks receive the same bits. They are not those of the communicators of the host. Sums of bf16 may be rounded at every hop: who needs
// one rounding sends f32.
//
// # Failure
//
// As package collective says. Whatever ends an operation early, ncclCommAbort takes it off the GPU before Done is completed.
// A time-out within NCCL cannot name who is late; one before it, of a rank that did not enqueue, does. Without a time-out, an operation that hangs within
// NCCL while all ranks live ends only when somebody aborts. NCCL has ten seconds to give up; then its threads and memory are left behind, and Close says so.
//
// # Settings
//
// NCCL reads NCCL_* from the environment when it is opened. [Settings] is the list of those that are allowed: nothing that loads code or writes files.
//
// # The library
//
// libhetero_nccl.so is built where a CUDA toolkit and nccl.h are found, and looked for as package nativelib says; it opens libnccl.so.2 where
// CUDA's other libraries are looked for (HETERO_CUDA_LIBS, toolkits, Python packages). [Available] tells why that cannot be done. shim/ holds a
// fake NCCL for tests.
//
// # Trust
//
// NCCL's connections are neither authenticated nor encrypted: they belong into a network that only the job's hosts are on.
package nccl
