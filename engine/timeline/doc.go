// Package timeline records the work of one rank during training: each launch, copy, wait and exchange with its time.
//
//	rec := timeline.New(step)
//	replica.Trace(rec)          // records from the next step on; no cost without a Recorder
//	…                           // steps
//	replica.Trace(nil)
//	for _, s := range rec.Spans() { … }
//	e := timeline.Explain(rec.Spans())[0]
//
// # Method
//
// A Recorder wraps the device's stream and runs programs by Stream.RunTimed, which measures every step of a program
// within one call. On a CPU, RunTimed reads the clock once per launch. On a GPU, it records one event per launch. The
// spans of a program's launches leave no gaps: the time between two launches is part of the later launch's span. Names,
// kernels, FLOPs and bytes come from device.DescribedProgram.
//
// On a GPU, RunTimed splits a program that normally runs as one graph. If the device can record its own activity
// (device.ActivityNoter), use a Recorder from NewNoted instead. This Recorder runs programs unchanged, and
// AddActivities adds the device's records after the steps. UseOf then reports the busy time of the device, its idle
// gaps, and the calls in which the host waited for the device.
//
// Times are nanoseconds since 1970. Each time is the wall-clock time at which the Recorder was created, plus the
// monotonic time since then. The times of all ranks on one machine are therefore comparable.
//
// Only the goroutine that trains may use a Recorder. A Recorder keeps all spans in memory, so record few steps. Errors
// of the device come from the stream's methods.
package timeline
