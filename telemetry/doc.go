// Package telemetry declares the sensors of a rank's device, process and machine: name, unit, column of the metric
// records, summary of several samples, and the change that explains a slow rank.
//
//	sample := telemetry.Unknown()                       // a probe sets the sensors that it can read
//	sample[telemetry.Temperature] = 71
//
//	var window telemetry.Window                         // per rank
//	window.Add(&sample)                                 // once per step
//	now := window.Summary()                             // at the end of the window
//	telemetry.Declared[telemetry.Memory].Sign(&now, &healthy) // "memory 99 % full, was 60 %", or ""
//
// Package profiler/hardware fills the samples, package engine/train sends them to all ranks, package profiler/runtime
// records those with a column, and package balancer looks for signs. None of them lists the sensors.
//
// # Adding a sensor
//
// Add a constant and its row in sensors.go, and set its value where it is measured: in profiler/hardware/nvml.go for a
// GPU, in profiler/system for the CPU and the process.
//
// The package reads no clock, file or network.
package telemetry
