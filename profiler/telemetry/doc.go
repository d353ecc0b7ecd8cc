// Package telemetry declares the sensors of a rank's device, process and machine. The declaration of a sensor contains
// its name, its unit and its column in the metric records. It also contains the rule that summarizes a window of
// samples, and the size of a difference that counts as evidence when a rank is slow.
//
//	sample := telemetry.Unknown()                       // a probe sets the values that it can read
//	sample[telemetry.Temperature] = 71
//
//	var window telemetry.Window                         // one per rank
//	window.Add(&sample)                                 // once per step
//	now := window.Summary()                             // at the end of the window
//	telemetry.Declared[telemetry.Memory].Sign(&now, &healthy) // "memory 99 % full, was 60 %", or ""
//
// Package profiler/hardware measures the samples, and package engine/train sends them to all ranks. Package
// profiler/runtime records the sensors that have a column. Package balancer calls Sign to explain why a rank is slow.
// None of these packages has its own list of sensors. A new sensor therefore changes only this package and the package
// that measures it.
//
// # Links
//
// A [Link] is a connection of a rank or of its machine. A [Meter] computes the [Traffic] of a link from byte counters,
// and [PutTraffic] adds the traffic of all links of a kind to the sensors.
//
// # Adding a sensor
//
// Add a constant and a row to sensors.go. Then set the value of the sensor where it is measured: in profiler/hardware
// for a GPU, in profiler/system for the CPU and the process.
//
// The package reads no clock, file or network.
package telemetry
