// Package system says what the host offers to this process and how much of it the process uses.
//
//	host, err := system.Detect()    // once: CPU, memory, disks, networks, limits, WSL2, container
//	load := system.NewSampler()     // then
//	load.Sample().CPUPercent        // as often as every step
//
//	waits := system.NewWaitSampler() // time in which this process's threads waited for CPUs that others had
//	sensors := system.NewSensorSampler() // temperature, power and clock of the CPU, where the machine tells them
//
// A process rarely has the whole machine: its affinity, a container's CPU quota and a memory limit bound it.
// Host therefore gives both, what the machine has and what the process may use, and percentages are shares
// of the latter. Cgroups are read in version 1, version 2 and mixtures of both, at every level from the
// process's own group up to the top that is visible.
//
// Read does the same on any file system that holds proc and sys, so that tests describe whole machines.
//
// Only Linux has what is read here. Elsewhere Detect returns an error and a Sampler's figures are NaN.
package system
