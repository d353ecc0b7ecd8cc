// Package processes lets the conformance suite of communicators (package collectivetest) drive ranks that are separate
// processes, as in training. It serves tests that cannot run in one process, such as NCCL's ranks on one GPU, and tests
// that kill ranks.
//
//	crew := processes.New(start, newAddress)       // in the test: start returns the command of a rank's process
//	defer crew.Close()
//	collectivetest.RunWith(t, crew.Open, collectivetest.Options{Apart: true})
//
//	processes.Serve(os.NewFile(3, ""), os.NewFile(4, ""), open, connect)   // in the rank, until the crew closes
//
// # How an operation travels
//
// The suite sees communicators over memory of its own process. An operation that the suite enqueues is sent to the
// rank's process. There it is enqueued on the real communicator, with memory of the real device:
//
//	the operation ──► enqueued, waits for an event
//	After is complete, its buffer is sent ──► a stream copies the content to the device and records the event
//	                       another stream waits for Done, copies the result back ──► the buffer here, then Done here
//
// Streams therefore wait for the communicator and it for them, as in training. Err, Sync, Abort, Close and Position are
// forwarded to the process. Errors keep their identity: the types and sentinels of package collective, and the causes
// that the suite gave.
//
// A process serves several groups in sequence, because opening a GPU takes longer than joining a group. A killed
// process is restarted for the next group.
package processes
