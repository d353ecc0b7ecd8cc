// Package timeline notes what one rank does while it trains: each launch, copy, wait and exchange with its time.
//
//	rec := timeline.New(step)
//	replica.Trace(rec)          // from the next step on; costs nothing while no one records
//	…                           // steps
//	replica.Trace(nil)
//	for _, s := range rec.Spans() { … }
//	e := timeline.Explain(rec.Spans())[0]
//
// # How
//
// A Recorder stands in for the device's stream and runs programs by Stream.RunTimed, which measures every step of a program within
// one call: on a CPU a clock reading a launch, on a GPU an event. Launches of a program follow one another without a gap: what passing from one to the
// next takes belongs to the later one. Names, kernels, FLOPs and bytes come from device.DescribedProgram.
//
// A program that is one graph would be taken apart by that. Of a device that notes what it does itself (device.ActivityNoter) a Recorder made by NewNoted
// leaves programs alone, and AddActivities brings the notes when the steps are over; UseOf says how busy the device was, what lay between two things that it
// did, and where the host waited for it.
//
// Times are nanoseconds since 1970, read from the monotonic clock from when the Recorder was made: spans of ranks of one machine lie on one
// clock.
//
// A Recorder is for one goroutine, the one that trains.
package timeline
