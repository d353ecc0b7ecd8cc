// Package hardware finds and describes the GPUs of this machine, and reads the telemetry of a device.
//
//	gpus := hardware.Open()          // never fails; without a driver, gpus.Reason returns the cause
//	defer gpus.Close()
//	for _, g := range gpus.All() {}  // name, architecture, cores, memory, links, clocks
//	probe := gpus.Probe(0, limits)   // or hardware.ProbeCPU(limits) for a rank that computes on the CPU
//	defer probe.Close()
//	sample, err := probe.Sample()    // call it at most once per step
//
// Open loads NVML, a library of the NVIDIA driver. Open never fails: if NVML is missing, if the driver does not
// respond, or if the program was built without cgo, the result contains the reason and no GPUs. The same program
// therefore starts on every machine.
//
// # Telemetry
//
// The values of a [telemetry.Sample] help to distinguish a slow type of device from a faulty device. A value is NaN
// if the device or the machine does not provide it. After a GPU has fallen off the bus, Sample always returns a
// [LostError].
//
// Sample measures at most twice a second. Otherwise it returns the last measurement, so it may be called in every
// step; such a call only reads the clock. On a CPU, a measurement takes about 0.1 ms. It reads two files per process
// and one file per thread, and allocates only the list of threads. On a GPU, a measurement makes nine queries to the
// driver. Once in five seconds, it also reads the list of processes.
//
// # Links
//
//	source, err := gpus.LinkSource(0, false)                          // PCIe and NVLink of a GPU
//	links := hardware.NewLinks(source, system.NewLinkSampler())       // together with the networks of the machine
//	defer links.Close()                                               // before gpus.Close
//	links.Sample(traffic)                                             // call it once per step
//
// [Links] measures the traffic of links in the background, at most twice a second, because a measurement of a GPU takes
// 40 ms. For links without a traffic counter, all values are NaN.
//
// # Identity
//
// [Identify] describes the hardware of one rank by a fingerprint and a short key. If the fingerprint changes, profiles
// that were measured on the hardware are no longer valid. The key identifies the type of the device, so use it for data
// that applies to all equal devices.
package hardware
