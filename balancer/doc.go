// Package balancer decides how many samples of the global batch each rank gets.
//
// It is a set of pure functions over numbers: it imports nothing of this module, and neither time, os nor net. Who
// measures (profiler) and who acts on the shares (engine/train) are elsewhere, so a decision can be replayed from its
// numbers alone.
//
// # Shares
//
// A share is the number of samples of one global batch that a rank computes. Shares are integers and sum to the
// global batch exactly: a split changes who computes a sample, never which samples a step has.
//
// [Split] is the rule that all proportional decisions end in: speeds and limits in, shares out. It gives every rank
// that can hold a sample at least one; a rank is left out only by a limit of 0.
//
//	shares, err := balancer.Split(256, []float64{300, 100}, nil) // [192 64]
//
// # Policies
//
// [Policies] lists the names that balance.policy accepts in a configuration. They differ in where the speeds come
// from; with one rank all of them give it the whole batch.
//
// # Errors
//
// A split that cannot exist is [ErrInfeasible]. Arguments that no caller should pass (a speed that is not a positive
// number, a negative limit, lengths that differ) are other errors; nothing panics.
package balancer
