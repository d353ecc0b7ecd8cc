// Package null is a device without memory and maths that only models time. Tests of planner, overlap and balancing use
// it; a process can open a thousand null devices.
//
// # Time
//
// A launch takes LaunchSeconds + max(FLOPs/FLOPS, bytes/BytesPerSecond), where bytes counts every operand once. A copy
// takes LaunchSeconds + bytes/CopyBytesPerSecond. Each stream has a clock that its work advances. An event carries the
// clock of the stream that recorded it, and the clock of a waiting stream advances at least to that time, so overlap is
// modelled correctly. [Device.Now] is the latest clock; RunTimed reports modelled durations.
//
// With Model.RealTime above 0 a call also sleeps: RealTime seconds per modelled second. A program sleeps before it
// completes an event and at its end, so that other goroutines see events at their modelled times.
//
// # Memory
//
// Allocations are counted and limited, but only host memory exists. Copies from the device return zeros. All layouts
// are plain. Arguments are checked as strictly as on the reference device, and errors are those of package device.
package null
