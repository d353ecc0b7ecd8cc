// Package balancer is the contract of balancing policies. A policy decides how many samples of the global batch each
// rank gets.
//
// Policies are pure functions over numbers: this package and the packages below it import neither time, os nor net.
// Package profiler measures, and engine/train applies the shares. A decision can therefore be replayed from its numbers
// alone, and tests simulate thousands of steps in milliseconds (package simulate).
//
// # Subpackages
//
//	divide     curves and solvers: the best shares for known step times
//	estimate   the posterior of the ranks' step times
//	straggler  detection of slow and sick ranks, with causes
//	hybrid     the policy that chooses and probes shares on estimated curves
//	policies   the list of policies, and the policies without a model of step times
//	simulate   simulation of policies on known curves
//
// # Shares
//
// A share is the number of samples of one global batch that a rank computes. Shares are integers, and their sum is the
// global batch. A split changes the rank that computes a sample; it never changes the samples of a step. [divide.Batch]
// states the number of samples, the largest share of each rank, and the unit of which shares are multiples. Every rank
// that can hold one unit gets at least one, unless Options.Bench excludes it.
//
// # The loop
//
// A [Policy] returns initial shares, and then observes every step. After each interval it returns a [Decision]:
//
//	policy, err := policies.New("hybrid", balancer.Options{Batch: divide.Batch{Total: 256, Limits: limits}, Ranks: 4, Interval: 10})
//	if err != nil {
//		return err
//	}
//	shares := policy.Start()
//	for {
//		step := train(shares) // *balancer.Step: the measurements of all ranks, equal on all ranks
//		if d, ok := policy.Observe(step); ok && d.Changed {
//			log(d.Reason)
//			shares = slices.Clone(d.Next) // now or some steps later: a policy reads the shares of each step
//		}
//	}
//
// The caller passes every optimizer step, in order, with one share for each rank. It sets Step.Settling for steps
// during which ranks compile plans for a change, so that policies ignore their times. Measurements may be missing or
// wrong, and the caller may set other shares than those of the policy. No policy panics on such steps, and its shares
// always sum to the batch. A Policy is not safe for concurrent use.
//
// Equal steps give equal decisions on all processors of one architecture, so each rank decides without messages.
// Between architectures, decisions can differ, because some compilers fuse multiplications and additions. Ranks of
// different architectures must therefore compare their decisions. Only [divide.Split] is exact everywhere.
//
// # Explanations
//
// An [Explanation] divides the measured time of a step into useful work and lost time by cause (package account). Its
// imbalance is 1 minus the fraction of the oracle. A value that cannot be known is NaN. If the fraction, which comes
// from curves, clearly differs from the measured times of the window, Disagreement says why.
//
// # Errors
//
// If the ranks together cannot hold the batch, the error is [divide.ErrInfeasible]. Other errors report invalid
// arguments, with the rank, got and want: for example a score that is not a positive number, slices of different
// lengths, or a curve whose points do not ascend. Numbers never cause a panic. A Step whose number of shares differs
// from the number of ranks is a programming error.
package balancer
