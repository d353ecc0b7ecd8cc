// Package staged adds support for device memory to a host communicator (the inner communicator), which can transfer
// only host memory. It copies the data to page-locked memory, runs the inner communicator on this copy, and copies the
// result back. GPU ranks and CPU ranks can therefore form one group, over package gloo, shm or hosts. The results on
// all ranks are bit-equal to those of the inner communicator.
//
// # Stages of an operation
//
//	fetch   own thread and stream: waits for After, then copies to the host the data that other ranks need
//	inner   the inner communicator runs the operation on the page-locked copy
//	bring   another thread and stream: copies back the data that the operation changed, then completes Done
//
// Events connect the three stages. The stages of different operations overlap: while one bucket is reduced, the next
// one is fetched, and the previous one is copied back. If two operations use the same memory, the later operation is
// fetched only after the result of the earlier one has been copied back. Operations on host memory, and barriers, go to
// the inner communicator unchanged.
//
// The first use of an operation allocates its page-locked memory, and later uses reuse it. In total, this memory is as
// large as the buffers of all operations of a step.
//
// # Failure
//
// The first failure of the inner communicator is also the failure of this communicator. A failed copy aborts the inner
// communicator.
//
// # Duties of the caller
//
// The caller has the duties that package collective lists. The device must stay open until the communicator is closed.
// Close also closes the inner communicator.
package staged
