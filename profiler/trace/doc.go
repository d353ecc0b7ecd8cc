// Package trace writes the events of a run in the formats of other viewers: TensorBoard and Perfetto.
//
// # TensorBoard
//
//	b, err := trace.OpenBoard(dir, trace.BoardOptions{Fresh: !resumed, Keep: step, OnFault: warn})
//	b.Scalars(step, time.Now(), []trace.Scalar{{"train/loss", 2.3}})  // copies to memory: no allocation, no system call
//	b.Text(step, time.Now(), "config", markdown)
//	err = b.Restart(step)  // the run returns to step: later steps will run again
//	err = b.Close()
//
// Event files are lists of records: length, its CRC-32C, an Event message of TensorFlow, its CRC-32C. Each process of a
// run starts its own file, as all writers do. It removes from earlier files the events after the step from which the
// run continues, and partial records of a killed process, so that readers see each step once. A SessionLog START makes
// a TensorBoard that has read the removed events forget them. A background goroutine writes events once a second. If
// the disk is full, they wait in memory, up to 4 MiB.
//
// # Timeline
//
//	trace.Align(ranks)                       // clocks of ranks on other hosts
//	err = trace.WriteTimeline(file, ranks, facts)
//
// The output is the trace-event format of ui.perfetto.dev and chrome://tracing. Each rank is a process. Each of
// timeline's tracks is a thread; for GPUs each stream is. Each span is an event with its kernel, operands, bytes and
// FLOPs.
//
// # Errors
//
// OpenBoard and WriteTimeline return errors of files. A Board reports later write errors through OnFault, and from
// Flush, Sync and Close.
package trace
