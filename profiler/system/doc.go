// Package system describes the resources that this process may use on the host, and how much of them it uses.
//
//	host, err := system.Detect()    // once: CPU, memory, disks, networks, limits, WSL2, container
//	load := system.NewSampler(system.Limits{Threads: 2}) // once
//	load.Sample().CPUPercent        // call it at most once per step
//
//	waits := system.NewWaitSampler(system.Limits{}) // time for which threads waited for CPUs that other processes used
//	sensors := system.NewSensorSampler() // temperature, power and clock of the CPU, if available
//	links := system.NewLinkSampler() // traffic of network interfaces and RDMA ports
//
// Affinity, a CPU quota and a memory limit often restrict a process to a part of the machine. Host therefore
// describes the resources of the machine and those of the process. Percentages are relative to the resources of the
// process. The package supports control groups of version 1, of version 2, and mixtures of both. It reads every
// level, from the process's own group up to the highest visible group.
//
// Read is the same as Detect, but reads any file system that contains proc and sys. Tests use it to describe
// machines.
//
// # Errors
//
// On other systems than Linux, Detect returns only name, kernel, CPUs and memory, and the values of a Sampler are NaN.
// If a part of the description cannot be read, Detect returns the other parts together with an error.
package system
