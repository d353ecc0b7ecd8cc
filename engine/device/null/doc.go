// Package null is a device without memory and without maths: it only models time. Planner, overlap and balancing
// are tested on it, with a thousand devices in one process if need be.
//
// # Time
//
// A launch takes LaunchSeconds + max(FLOPs/FLOPS, bytes/BytesPerSecond), bytes being those of all operands, each once; a copy takes
// LaunchSeconds + bytes/CopyBytesPerSecond. Each stream has a clock that its work advances. An event carries the
// clock of the stream that recorded it, and who waits for it is at least as late: so overlap comes out right.
// [Device.Now] is the latest clock; RunTimed reports modelled durations.
//
// With Model.RealTime above 0 a call also sleeps: RealTime seconds of sleep for a modelled second. A program sleeps before it
// completes an event and at its end, so that other goroutines see events when they are due.
//
// # Memory
//
// Allocations are counted and limited, but only host memory exists. What is copied from the device is zeros.
// All layouts are plain. Arguments are checked as strictly as on the reference device.
package null
