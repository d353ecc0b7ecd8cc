// Package cgroup reads the control groups of this process: CPU quotas, memory limits and memory use.
//
//	root := os.DirFS("/")
//	groups := cgroup.Read(root)
//	if cpus, limited := groups.CPUQuota(root); limited { … }
//	for _, level := range groups.Memory(root) { … } // the process's own group first, then its parents
//
// It supports versions 1 and 2 of control groups, and both together. If a file is missing or unreadable, the limit
// counts as absent, or the number as unknown. The root folder is a parameter, so that tests can describe machines with
// files.
package cgroup
