package balancer

// Policies returns the names of the balancing policies, the baseline first:
//
//	none          equal shares
//	proportional  by the static compute score of each rank
//	dynamic       by compute score and measured speed, utilization and memory
//	hybrid        from fitted step-time curves, the shares with the shortest step
func Policies() []string {
	return []string{"none", "proportional", "dynamic", "hybrid"}
}
