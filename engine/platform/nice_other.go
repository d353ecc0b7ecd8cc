//go:build unix && !linux

package platform

// niceOf converts a result of getpriority to a nice value. On these systems, the result is the nice value.
func niceOf(priority int) int { return priority }
