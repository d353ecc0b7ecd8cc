// Package staged lets communicators of the host carry what lies in the memory of a device that the host cannot see: on the way
// out it is copied to page-locked memory, on the way back from there. So ranks on GPUs and ranks on CPUs form one group, over package
// gloo, shm or hosts, and all of them get the same bits: those of the inner communicator.
//
// # How an operation goes
//
//	fetch   a thread and a stream of its own: waits for After, then copies what the others need of the buffer
//	inner   the operation itself, on the page-locked copy
//	bring   another thread and stream: copies what the operation changed, then completes Done
//
// The three are joined by events and overlap: while one bucket travels the next is fetched and the one before brought back. An operation on
// memory that an earlier one still uses is fetched when that has been brought back. Operations on memory of the host, and barriers,
// go to the inner communicator as they are.
//
// Page-locked memory is taken when an operation comes for the first time and kept for when it comes again: as many bytes as all operations
// of a step have.
//
// # Failure
//
// The inner communicator's first failure is this one's. A copy that fails aborts it.
//
// # Duties of the caller
//
// Those of package collective. The device stays open until the communicator is closed; it closes the inner one.
package staged
