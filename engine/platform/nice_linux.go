package platform

// niceOf returns the nice value in a result of getpriority: the kernel returns 20 minus the value.
func niceOf(priority int) int { return 20 - priority }
