// Package timeline records the work of one rank during training: each launch, copy, wait and exchange with its time.
//
//	rec := timeline.New(step)
//	replica.Trace(rec)          // from the next step on; costs nothing while nothing is recorded
//	…                           // steps
//	replica.Trace(nil)
//	for _, s := range rec.Spans() { … }
//	e := timeline.Explain(rec.Spans())[0]
//
// # Method
//
// A Recorder wraps the device's stream and runs programs by Stream.RunTimed. RunTimed measures every step of a program
// within one call: with a clock reading per launch on a CPU, with an event per launch on a GPU. Launches of a program
// follow each other without a gap: the time between two launches belongs to the later one. Names, kernels, FLOPs and
// bytes come from device.DescribedProgram.
//
// RunTimed would split a program that runs as one graph. If the device records its own activity (device.ActivityNoter),
// use a Recorder from NewNoted: it runs programs unchanged, and AddActivities adds the device's records after the
// steps. UseOf then returns how busy the device was, its idle times, and where the host waited for it.
//
// Times are nanoseconds since 1970, from the monotonic clock since the Recorder was created. Spans of ranks of one
// machine are therefore on one clock.
//
// One goroutine, the one that trains, uses a Recorder. It keeps all spans until it is dropped, so record few steps.
// Errors of the device come from the stream's methods.
package timeline
