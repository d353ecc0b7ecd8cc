// Package hardware finds the GPUs of this machine, describes them, and reads the telemetry of a device during work.
//
//	gpus := hardware.Open()          // never fails: without a driver Reason returns the cause
//	defer gpus.Close()
//	for _, g := range gpus.All() {}  // name, architecture, cores, memory, links, clocks
//	probe := gpus.Probe(0)           // or hardware.ProbeCPU() for a rank that computes on the CPU
//	defer probe.Close()
//	sample, err := probe.Sample()    // at most every step
//
// Open loads NVML, the library of NVIDIA's driver. A machine without it, a program built without cgo, and a driver that
// does not respond give a result with a reason, not an error, so the same program starts everywhere.
//
// # Telemetry
//
// A [telemetry.Sample] contains the figures that distinguish a slow type of device from a sick one. A figure that the
// device or the machine does not provide is NaN. If a GPU falls off the bus, Sample returns a [LostError] from then on.
//
// Sample measures at most twice a second and otherwise returns the last measurement, so it may be called at every step.
// On the CPU a measurement takes about 0.1 ms: two files per process and one per thread, with an allocation only for
// the list of threads. A call in between costs a clock reading. On a GPU a measurement is nine queries to the driver;
// the list of processes is read once in five seconds.
//
// # Identity
//
// [Identify] describes the hardware of one rank. Its fingerprint changes when a profile measured on the hardware is no
// longer valid. Its short key names the TYPE of device, for data that applies to all equal devices.
package hardware
