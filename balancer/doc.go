// Package balancer decides how many samples of the global batch each rank gets.
//
// It is a set of pure functions over numbers. Of this module it imports only account and telemetry; it imports neither
// time, os nor net. Package profiler measures, and engine/train applies the shares. A decision can therefore be replayed
// from its numbers alone, and tests simulate thousands of steps in milliseconds ([simulate]).
//
// # Shares
//
// A share is the number of samples of one global batch that a rank computes. Shares are integers, and their sum is the
// global batch. A split changes the rank that computes a sample; it never changes the samples of a step. [divide.Batch] states
// the number of samples, the largest share of each rank, and the unit of which shares are multiples. Every rank that can
// hold one unit gets at least one, unless Options.Bench excludes it.
//
// # Policies
//
// A [Policy] has initial shares, and then observes every step. After each interval it returns a [Decision]:
//
//	none          equal shares, as in plain data parallelism
//	proportional  shares in proportion to the static compute score of each rank
//	dynamic       a formula of the score, measured speed, utilization and memory; it halves the shares of stragglers
//	hybrid        the shares with the shortest step, on step-time curves that are fitted to measurements
//
// hybrid keeps one probabilistic model of the time of each rank. A level changes the times of all shares by one factor; it
// is estimated within windows, in which the share is constant. A shape is a regression under several hypotheses about the
// tiles in which kernels work. [divide.Solve] finds the shares that minimize the time of the slowest rank on the expected
// [divide.Curve]s. One measured share says little about other shares, so a decision changes a share by a limited factor, and a
// probe measures shares that could be better while its expected gain exceeds its expected cost. Ranks of one device type
// borrow measured shares from each other, and their curves move towards their mean by the part of their differences that
// noise explains. hybrid can also minimize energy or money ([divide.Cheapest]), and exclude ranks without which every step is
// shorter.
//
// # The loop
//
//	policy, err := balancer.New("hybrid", balancer.Options{Batch: divide.Batch{Total: 256, Limits: limits}, Ranks: 4, Interval: 10})
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
// The caller passes every optimizer step, in order, with one share for each rank. It marks steps as Settling while ranks
// compile plans for a change. Measurements may be missing or wrong, and the caller may set other shares than those of
// the policy. No policy panics on such steps, and its shares always sum to the batch. One goroutine at a time uses a
// policy.
//
// Equal steps give equal decisions on all processors of one architecture, so each rank decides without messages. On
// different architectures, results can differ, because some compilers fuse multiplications and additions. Ranks of
// different architectures must therefore compare their decisions. Only [divide.Split] is exact everywhere.
//
// # Explanations
//
// An [Explanation] divides the measured time of a step into useful work and lost time by cause (package account). Its
// imbalance is 1 minus the fraction of the oracle. [Explained] explains the decisions of a policy that fits no curves.
// A value that cannot be known is NaN. [divide.Marginal] computes the value of a rank for the group.
//
// # Stragglers
//
// [MedianRule] compares ranks with each other. A [Detector] distinguishes a slow type of device from a sick device, by
// the past of each rank and by the telemetry of its device.
//
// # Errors
//
// If no shares exist that hold the batch, the error is [divide.ErrInfeasible]; it states the number of samples without a place
// and the largest share of each rank. Other errors report invalid arguments (a score that is not a positive number,
// slices of different lengths, a curve whose points do not ascend), with the rank, got and want. Numbers never cause a
// panic. A Step whose number of shares differs from the number of ranks is a programming error.
//
// # Sources
//
//   - Oracle: the exact minimum over integer shares, by bisection of the step time. Curves that rise allow this search:
//     it finds the least time in which the ranks together can compute the batch ([divide.Solve]).
//   - Curves: Gaussian-process regression with a linear and a Brownian kernel (Rasmussen and Williams, Gaussian Processes
//     for Machine Learning, 2006, ch. 2). Its input is a Kalman filter whose states are the times at measured shares. The
//     process noise is learnt from the innovations, curvature and tiles from all ranks (empirical Bayes). A prediction is a
//     mean over hypotheses of tiles, weighted by their evidence (Bayesian model averaging).
//   - Outliers within a window: Huber, Robust Estimation of a Location Parameter, 1964.
//   - The formula of dynamic is this project's own. It uses the time per sample, normalised over the ranks. In synchronous
//     training the time of an iteration is equal on all ranks, so a formula of that time would return to equal shares.
//
// [simulate]: https://pkg.go.dev/github.com/hetero-train/hetero-train/balancer/simulate
package balancer
