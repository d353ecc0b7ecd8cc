// Package conformance lets the same suites of checks run both under `go test` and inside the released program.
//
//	func Run(t conformance.T, open Opener) { t.Run("values", func(t conformance.T) { … }) }  // a suite
//
//	func TestConformance(t *testing.T) { suite.Run(conformance.Go(t), open) }                // under go test
//	result := conformance.Run("cpu", func(t conformance.T) { suite.Run(t, open) }, options)   // in the program
//
// [T] contains the methods of *testing.T that suites need, with the same meaning. Fatal ends a check with
// runtime.Goexit. A failed check also fails the checks that contain it. Clean-ups run in reverse order, after a check
// and its sub-checks have ended.
//
// Unlike go test, [Run] continues after a check that panics. If a check exceeds [Options].Limit, Run marks it as failed
// and prints the stacks of all goroutines. Run then starts no further checks, because the hung check still holds its
// resources.
package conformance
