// Package hardware finds the GPUs of this machine, tells what they are, and how a device fares while it works.
//
//	gpus := hardware.Open()          // never fails: without a driver Reason says why there is none
//	defer gpus.Close()
//	for _, g := range gpus.All() {}  // name, architecture, cores, memory, links, clocks
//	probe := gpus.Probe(0)           // or hardware.ProbeCPU() for a rank that computes on the CPU
//	defer probe.Close()
//	health, err := probe.Sample()    // as often as every step
//
// NVML, the library of NVIDIA's driver, is loaded when Open is called. A machine without it, a program built without cgo and a
// driver that does not answer are results with a reason, not errors: the same program starts everywhere.
//
// # Health
//
// [Health] holds what tells a slow type of device from a sick one. A figure that this device or this machine does not offer is NaN (a
// count: -1); it is never guessed. A GPU that falls off the bus while it is sampled is a [LostError], from then on for ever.
//
// Sample measures at most twice a second and returns the figures it has in between, so it may be called at every step. On the CPU a measurement
// takes about 0.1 ms (two files for each process, one for each thread, no allocation but for the list of threads); a call in between takes a
// clock reading. On a GPU it is nine questions to the driver, the list of processes once in five seconds.
//
// # Identity
//
// [Identify] names the hardware under one rank: a fingerprint that changes when a profile measured on it no longer holds, and a short key of the
// TYPE of device, for what is known of all devices alike.
package hardware
