// Package processes lets the conformance suite of communicators (package collectivetest) drive ranks that are processes of their own, as those of a
// training are: for what cannot be had in one process, as NCCL's ranks on one GPU, and for ranks that are killed in earnest.
//
//	crew := processes.New(start, newAddress)       // here: start makes the command of a rank's process
//	defer crew.Close()
//	collectivetest.RunWith(t, crew.Open, collectivetest.Options{Apart: true})
//
//	processes.Serve(os.NewFile(3, ""), os.NewFile(4, ""), open, connect)   // there, until the crew closes
//
// # How an operation travels
//
// The suite sees communicators of memory of this process. An operation that it enqueues goes to the rank's process, where it is enqueued on the real
// communicator with memory of the real device:
//
//	the operation ──► enqueued, to start at an event
//	After is complete, and with it the buffer's content ──► a stream copies that to the device and records the event
//	                       another stream waits for Done, copies the result back ──► the buffer here, then Done here
//
// so streams wait for the communicator and it for them, as in training. Err, Sync, Abort, Close and Position are asked there. Errors come back as
// what they were: the types and sentinels of package collective, and the causes that the suite gave.
//
// A process serves one group after the other: opening a GPU takes longer than joining. One that was killed is started anew for the next group.
package processes
