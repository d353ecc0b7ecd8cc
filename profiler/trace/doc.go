// Package trace writes what happens in a run in the formats of other people's viewers.
//
// # TensorBoard
//
//	b, err := trace.OpenBoard(dir, trace.BoardOptions{Fresh: !resumed, Keep: step, OnFault: warn})
//	b.Scalars(step, time.Now(), []trace.Scalar{{"train/loss", 2.3}})  // copies to memory: no allocation, no system call
//	b.Text(step, time.Now(), "config", markdown)
//	err = b.Restart(step)  // the run goes back: later steps come again
//	err = b.Close()
//
// Event files are lists of records: length, its CRC-32C, an Event message of TensorFlow, its CRC-32C. Each process of a run begins a
// file of its own, as all writers do; in the files before it events behind the step that the run goes on from are cut off, with
// whatever a kill left half-written, so that no step is there twice for any reader. A TensorBoard that has read them already is told
// to forget them (SessionLog START). A background goroutine hands events to the system once a second; where the disk is full they
// wait in memory, up to 4 MiB.
//
// # Timeline
//
//	trace.Align(ranks)                       // clocks of ranks on other hosts
//	err = trace.WriteTimeline(file, ranks, facts)
//
// The trace-event format that ui.perfetto.dev and chrome://tracing open: a process for each rank, a thread for each of timeline's tracks or, of a GPU, streams, an event
// for each span with its kernel, operands, bytes and FLOPs.
package trace
