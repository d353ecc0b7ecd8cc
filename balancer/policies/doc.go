// Package policies lists the built-in balancing policies. It contains the policies without a model of the ranks:
//
//	none          equal shares, as in plain data parallelism
//	proportional  shares in proportion to the static compute score of each rank
//	dynamic       a formula of the score, measured speed, utilization and memory; it halves the shares of stragglers
//
// Policy hybrid is in package hybrid. [Periodic] turns a function into a policy.
package policies
