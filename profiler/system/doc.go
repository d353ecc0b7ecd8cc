// Package system describes the resources that the host offers to this process, and their use.
//
//	host, err := system.Detect()    // once: CPU, memory, disks, networks, limits, WSL2, container
//	load := system.NewSampler()     // then
//	load.Sample().CPUPercent        // at most every step
//
//	waits := system.NewWaitSampler() // time that this process's threads waited for CPUs used by others
//	sensors := system.NewSensorSampler() // temperature, power and clock of the CPU, if available
//
// A process rarely may use the whole machine: its affinity, a container's CPU quota and a memory limit restrict it.
// Host therefore contains both the resources of the machine and those of the process, and percentages are relative to
// the latter. Control groups are read in version 1, version 2 and mixtures, at every level from the process's own group
// to the top that is visible.
//
// Read does the same on any file system that contains proc and sys, so that tests can describe machines.
//
// # Errors
//
// This package supports only Linux. On other systems Detect returns an error, and a Sampler's figures are NaN. If
// Detect cannot read a part, it returns the other parts together with an error.
package system
