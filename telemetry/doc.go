// Package telemetry declares the sensors of a rank's device, process and machine. A declaration contains the sensor's
// name, unit and column in the metric records. It also contains the rule that summarizes several samples, and the
// change in value that counts as a reason why a rank is slow.
//
//	sample := telemetry.Unknown()                       // a probe sets the values that it can read
//	sample[telemetry.Temperature] = 71
//
//	var window telemetry.Window                         // one per rank
//	window.Add(&sample)                                 // once per step
//	now := window.Summary()                             // at the end of the window
//	telemetry.Declared[telemetry.Memory].Sign(&now, &healthy) // "memory 99 % full, was 60 %", or ""
//
// Package profiler/hardware fills the samples, and package engine/train sends them to all ranks. Package
// profiler/runtime records the sensors that have a column. Package balancer calls Sign to explain slow ranks. None of
// these packages has its own list of sensors, so a new sensor changes only this package and the one that measures it.
//
// # Adding a sensor
//
// Add a constant and a row to sensors.go. Then set the sensor's value where it is measured: in
// profiler/hardware/nvml.go for a GPU, in profiler/system for the CPU and the process.
//
// The package reads no clock, file or network.
package telemetry
