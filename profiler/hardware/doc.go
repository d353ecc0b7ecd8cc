// Package hardware finds the GPUs of this machine, describes them, and reads the telemetry of a device during work.
//
//	gpus := hardware.Open()          // never fails; without a driver, gpus.Reason returns the cause
//	defer gpus.Close()
//	for _, g := range gpus.All() {}  // name, architecture, cores, memory, links, clocks
//	probe := gpus.Probe(0)           // or hardware.ProbeCPU() for a rank that computes on the CPU
//	defer probe.Close()
//	sample, err := probe.Sample()    // call it at most once per step
//
// Open loads NVML, the library of NVIDIA's driver. Open does not fail on a machine without NVML, in a program built
// without cgo, or if the driver does not respond. The result then contains the reason, so the same program starts
// everywhere.
//
// # Telemetry
//
// A [telemetry.Sample] contains values that help to tell a slow type of device from a faulty device. A value that the
// device or the machine does not provide is NaN. After a GPU has fallen off the bus, Sample always returns a
// [LostError].
//
// Sample measures at most twice a second and otherwise returns the last measurement, so it may be called at every step.
// On the CPU a measurement takes about 0.1 ms. It reads two files per process and one file per thread, and allocates
// only the list of threads. A call between two measurements only reads the clock. On a GPU a measurement makes nine
// queries to the driver, and reads the list of processes once in five seconds.
//
// # Identity
//
// [Identify] describes the hardware of one rank. The description has a fingerprint and a short key. If the fingerprint
// changes, profiles that were measured on the hardware are no longer valid. The key names the TYPE of device; use it
// for data that applies to all equal devices.
package hardware
