// Package policies lists the built-in balancing policies, and has those that need no model of the ranks:
//
//	none          equal shares, as in plain data parallelism
//	proportional  shares in proportion to the static compute score of each rank
//	dynamic       a formula of the score, measured speed, utilization and memory; it halves the shares of stragglers
//
// Policy hybrid is in a package of its own. [Periodic] makes a policy of a function.
package policies
