// Package collectivetest is the conformance suite for communicators. It checks the contract of package collective on
// any implementation.
//
//	func TestConformance(t *testing.T) { collectivetest.Run(conformance.Go(t), open) }
//
// open creates a group whose ranks are all in the process of the test. The suite drives every rank by a goroutine of
// its own. It compares values bit for bit with a simple oracle: one loop over elements and ranks, in the order that the
// group declares.
//
// Package processes drives ranks that are separate processes, through communicators that represent them in the test.
// [Options].Apart leaves out checks that cannot observe other processes. A group with an unspecified order of addition
// ([Group].Unordered) must give exact bits only where every order gives the same bits. Elsewhere the suite checks the
// bound of the rounding errors.
package collectivetest
