// Package conformance lets the same suites of checks run both under `go test` and inside the released program.
//
//	func Run(t conformance.T, open Opener) { t.Run("values", func(t conformance.T) { … }) }  // a suite
//
//	func TestConformance(t *testing.T) { suite.Run(conformance.Go(t), open) }                // under go test
//	result := conformance.Run("cpu", func(t conformance.T) { suite.Run(t, open) }, options)   // in the program
//
// [T] contains the methods of *testing.T that suites need, with the same meaning. Fatal ends a check with
// runtime.Goexit. If a check fails, the checks that contain it also fail. After a check and its sub-checks have
// ended, its clean-ups run in reverse order.
//
// Unlike go test, [Run] continues after a check that panics. If a check exceeds [Options].Limit, Run marks it as
// failed and prints the stacks of all goroutines. Run then starts no further checks, because the hanging check still
// holds its resources.
package conformance
