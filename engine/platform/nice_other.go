//go:build unix && !linux

package platform

// niceOf returns the nice value in a result of getpriority.
func niceOf(priority int) int { return priority }
