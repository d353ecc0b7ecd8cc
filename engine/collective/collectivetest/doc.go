// Package collectivetest is the conformance suite for communicators. It checks the contract of package collective on
// any implementation.
//
//	func TestConformance(t *testing.T) { collectivetest.Run(conformance.Go(t), open) }
//
// open creates a group whose ranks are all in the process of the test. The suite runs one goroutine per rank. It
// compares values bit for bit with a simple oracle: one loop over elements and ranks, in the order that the group
// declares.
//
// Package processes drives ranks that are separate processes, through communicators that represent them in the test.
// [Options].Apart skips the checks that need to look inside the ranks, which is impossible when the ranks are separate
// processes. A group may leave the order of addition unspecified ([Group].Unordered). The suite then compares bits only
// for sums that are the same in every order. For other sums it checks the rounding error against a bound.
package collectivetest
