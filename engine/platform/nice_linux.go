package platform

// niceOf converts a result of getpriority to a nice value. The kernel returns 20 minus the nice value.
func niceOf(priority int) int { return 20 - priority }
