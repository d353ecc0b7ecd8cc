// Package staged lets communicators of the host transfer device memory that the host cannot access. It copies the data
// to page-locked memory, runs the operation there, and copies the result back. Ranks on GPUs and ranks on CPUs can thus
// form one group, over package gloo, shm or hosts. All ranks get the same bits: those of the inner communicator.
//
// # Stages of an operation
//
//	fetch   own thread and stream: waits for After, then copies to the host the data that other ranks need
//	inner   the operation itself, on the page-locked copy
//	bring   another thread and stream: copies back the data that the operation changed, then completes Done
//
// Events join the three stages, which overlap: while one bucket is reduced, the next is fetched and the previous one is
// copied back. If an operation uses memory of an earlier operation, it is fetched after the earlier one has been copied
// back. Operations on host memory, and barriers, go to the inner communicator unchanged.
//
// Page-locked memory is allocated for the first use of an operation, and kept for its next use. Its size is that of the
// buffers of all operations of a step.
//
// # Failure
//
// The first failure of the inner communicator is also the failure of this one. A failed copy aborts the inner
// communicator.
//
// # Duties of the caller
//
// The duties are those of package collective. The device must stay open until the communicator is closed. Close also
// closes the inner communicator.
package staged
