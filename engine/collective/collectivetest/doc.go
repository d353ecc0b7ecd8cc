// Package collectivetest is the conformance test suite for communicators. It checks whether an implementation fulfils
// the contract of package collective.
//
//	func TestConformance(t *testing.T) { collectivetest.Run(conformance.Go(t), open) }
//
// The function open creates a group whose ranks are all in the process of the test. The suite runs one goroutine per
// rank. It checks that values are bit-equal to those of a simple oracle: one loop over elements and ranks, in the order
// that the group declares.
//
// Package processes drives ranks that are separate processes, through communicators that represent them in the test.
// The suite cannot access the memory of such ranks; set [Options].Apart to skip the checks that need this access. A
// group may leave the order of addition unspecified ([Group].Unordered). The suite then requires bit-equal results only
// for sums that are the same in every order. For other sums, it checks the rounding error against a bound.
package collectivetest
