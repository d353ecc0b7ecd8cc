// Package processes lets the conformance test suite for communicators (package collectivetest) drive ranks that are
// separate processes, as in training. Two kinds of tests need it: tests that cannot run in one process, such as NCCL's
// ranks on one GPU, and tests that kill ranks.
//
//	crew := processes.New(start, newAddress)       // in the test: start returns the command of a rank's process
//	defer crew.Close()
//	collectivetest.RunWith(t, crew.Open, collectivetest.Options{Apart: true})
//
//	processes.Serve(os.NewFile(3, ""), os.NewFile(4, ""), open, connect)   // in the rank, until the crew closes
//
// # Path of an operation
//
// The suite gets communicators that work on memory of its own process. When the suite enqueues an operation, package
// processes sends the operation to the rank's process. The rank enqueues it on the real communicator, with memory of
// the real device:
//
//	process of the suite                   process of the rank
//	the operation is enqueued          ──► the rank enqueues the operation, which waits for an event
//	the operation's After event is
//	complete: its buffer is sent       ──► a stream copies the buffer to the device and records the event
//	the suite's buffer is filled, then
//	the suite's Done event completes   ◄── another stream waits for Done and sends the result back
//
// Therefore, streams wait for the communicator and the communicator waits for streams, as in training. Err, Sync,
// Abort, Close and Position are forwarded to the rank's process. Errors keep their identity: errors.Is and errors.As
// find the types and sentinels of package collective, and the causes that the suite passed to Abort.
//
// A process serves several groups in sequence, because opening a GPU takes longer than joining a group. A killed
// process is restarted for the next group.
package processes
