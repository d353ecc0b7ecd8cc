// Package null is a device that only models time: it does not allocate device memory, and does not compute values.
// Tests of the planner, of overlap and of balancing use it. A process can open a thousand null devices.
//
// # Time
//
// A launch takes LaunchSeconds + max(FLOPs/FLOPS, bytes/BytesPerSecond), where bytes is the total size of all operands,
// each counted once. A copy takes LaunchSeconds + bytes/CopyBytesPerSecond. Each stream has a clock, and the stream's
// work advances this clock. An event stores the clock of the stream that recorded the event. The clock of a waiting
// stream advances at least to the stored time, so overlap is modelled correctly. [Device.Now] returns the latest of all
// clocks. RunTimed reports modelled durations.
//
// If Model.RealTime is above 0, a call also sleeps for RealTime seconds per modelled second. A program sleeps before it
// completes an event, and at its end. For other goroutines, events therefore complete at their modelled times, scaled
// by RealTime.
//
// # Memory
//
// Allocations are counted and limited, but only host memory exists. Copies from the device return zeros. All layouts
// are plain. Arguments are checked as strictly as on the reference device. The errors are those of package device.
package null
