// Package trace writes the events of a run in the formats of other viewers: TensorBoard and Perfetto.
//
// # TensorBoard
//
//	b, err := trace.OpenBoard(dir, trace.BoardOptions{Fresh: !resumed, Keep: step, OnFault: warn})
//	b.Scalars(step, time.Now(), []trace.Scalar{{"train/loss", 2.3}})  // copies the values to memory; no allocation, no system call
//	b.Text(step, time.Now(), "config", markdown)
//	err = b.Restart(step)  // the run returns to this step, so later steps will run again
//	err = b.Close()
//
// An event file is a list of records. A record consists of a length, the CRC-32C of the length, an Event message of
// TensorFlow, and the CRC-32C of the message. Each process of a run starts a new file, as TensorFlow's writers do.
//
// At its start, a process cleans up earlier files. It removes events of steps after the step at which the run
// resumes, and incomplete records of a killed process. Readers therefore see each step once. If TensorBoard has
// already read removed events, a SessionLog START event makes it discard them.
//
// A background goroutine writes events once a second. If the disk is full, up to 4 MiB of events wait in memory.
//
// # Timeline
//
//	trace.Align(ranks)                       // aligns the clocks of ranks on different hosts
//	err = trace.WriteTimeline(file, ranks, facts)
//
// The output is the trace-event format of ui.perfetto.dev and chrome://tracing. Each rank appears as a process. Each
// track of package timeline becomes a thread; on GPUs, each stream becomes a thread. Each span becomes an event with
// its kernel, operands, bytes and FLOPs.
//
// # Errors
//
// OpenBoard and WriteTimeline return the errors of file operations. A Board reports later write errors through OnFault,
// and returns them from Flush, Sync and Close.
package trace
