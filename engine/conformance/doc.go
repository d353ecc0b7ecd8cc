// Package conformance lets suites of checks run without `go test`: under it, and in the program that users have.
//
//	func Run(t conformance.T, open Opener) { t.Run("values", func(t conformance.T) { … }) }  // a suite
//
//	func TestConformance(t *testing.T) { suite.Run(conformance.Go(t), open) }                // under go test
//	result := conformance.Run("cpu", func(t conformance.T) { suite.Run(t, open) }, options)   // in the program
//
// [T] is the part of *testing.T that suites need, with the same meaning: Fatal ends a check by runtime.Goexit, a failed check fails those around it,
// clean-ups run last to first when a check and all within it have ended.
//
// Unlike go test, [Run] goes on behind a check that panics, and gives up one that does not end within [Options].Limit: it has failed then, with the stacks of
// all goroutines, and nothing after it runs, since it still holds what it held.
package conformance
