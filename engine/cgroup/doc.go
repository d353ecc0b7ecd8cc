// Package cgroup reads the control groups of this process: quotas of the CPU, limits and use of memory.
//
//	root := os.DirFS("/")
//	groups := cgroup.Read(root)
//	if cpus, limited := groups.CPUQuota(root); limited { … }
//	for _, level := range groups.Memory(root) { … } // the process's own group first, then its parents
//
// It supports versions 1 and 2 of control groups, and both together. Files that are missing or unreadable mean that
// there is no limit, or that a number is unknown. The root is a parameter, so tests describe machines by files.
package cgroup
