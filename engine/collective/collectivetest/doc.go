// Package collectivetest is the conformance suite of communicators: what package collective promises, checked on any
// implementation.
//
//	func TestConformance(t *testing.T) { collectivetest.Run(conformance.Go(t), open) }
//
// open makes a group whose ranks are all in the test's process. Every rank is then driven by a goroutine of its own. Values are
// compared, bit for bit, with a dumb twin: one loop over elements and ranks, in the order that the group claims.
//
// Ranks that are processes of their own are driven through package processes, which stands for each of them here. What the suite cannot see of those
// is left out ([Options].Apart). A group that adds in an order of its own ([Group].Unordered) is compared where every order gives the same bits, and
// held to what rounding allows elsewhere.
package collectivetest
