// Package system describes the resources that the host offers to this process, and how much of them is in use.
//
//	host, err := system.Detect()    // once: CPU, memory, disks, networks, limits, WSL2, container
//	load := system.NewSampler()     // once
//	load.Sample().CPUPercent        // call it at most once per step
//
//	waits := system.NewWaitSampler() // time that this process's threads waited for CPUs used by others
//	sensors := system.NewSensorSampler() // temperature, power and clock of the CPU, if available
//
// A process can rarely use the whole machine, because its affinity, a container's CPU quota and a memory limit restrict
// it. Host therefore contains the resources of the machine and those of the process. Percentages are relative to the
// resources of the process. The package reads control groups of version 1, of version 2, and mixtures of both. It reads
// every level, from the process's own group up to the highest visible group.
//
// Read works like Detect, but on any file system that contains proc and sys. Tests use it to describe machines.
//
// # Errors
//
// This package supports only Linux. On other systems Detect returns an error, and the values of a Sampler are NaN. If
// Detect cannot read a part of the description, it returns the other parts together with an error.
package system
