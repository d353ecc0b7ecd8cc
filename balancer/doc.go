// Package balancer decides how many samples of the global batch each rank gets.
//
// It is a set of pure functions over numbers: it imports nothing of this module, and neither time, os nor net. Who
// measures (profiler) and who acts on the shares (engine/train) are elsewhere, so a decision can be replayed from its
// numbers alone, and tests play thousands of steps in milliseconds ([simulate]).
//
// # Shares
//
// A share is the number of samples of one global batch that a rank computes. Shares are integers and sum to the
// global batch exactly: a split changes who computes a sample, never which samples a step has. [Batch] says what is
// divided: so many samples, at most so many on each rank, in multiples of a unit. Every rank that can hold a unit gets
// at least one; a rank is left out only by its limit, or by Options.Bench.
//
// # Policies
//
// A [Policy] has a first division and is then fed every step. After an interval it answers with a [Decision]:
//
//	none          equal shares, as plain data parallelism has them
//	proportional  by the static compute score of each rank
//	dynamic       by a formula that weighs the score against measured speed, utilization and memory; it halves stragglers
//	hybrid        from step-time curves that it fits to what is measured, the shares with the shortest step
//
// hybrid does what the others approximate. It keeps a [Curve] of every rank, time against share, and [Solve] finds the
// shares whose slowest rank is done first. What it does not know it finds out: a share that was measured once says
// little of others, so shares move by at most a factor at a time, and a probe may try what could be better, for as
// many intervals as noise asks. Other changes must gain more than what may be noise, and than what changes have cost. It can also spend less energy or money
// ([Cheapest]) and leave out ranks that every step is shorter without.
//
// # On trial
//
// [New] also makes "posterior", which no list shows: hybrid's successor, until every figure is as good. It keeps one
// probabilistic model of each rank's time. A level moves all shares alike; it is read within windows, where the share is
// constant. A shape is a regression under several hypotheses of the tiles in which kernels work. It remembers each share
// that was measured, and probes shares that may fill tiles as long as that is worth its expected cost.
//
// # The loop
//
//	policy, err := balancer.New("hybrid", balancer.Options{Batch: balancer.Batch{Total: 256, Limits: limits}, Ranks: 4, Interval: 10})
//	if err != nil {
//		return err
//	}
//	shares := policy.Start()
//	for {
//		step := train(shares) // *balancer.Step: what each rank measured, on all ranks the same
//		if d, ok := policy.Observe(step); ok && d.Changed {
//			log(d.Reason)
//			shares = slices.Clone(d.Next) // now, or some steps later: policies look at the shares of each step
//		}
//	}
//
// The caller feeds every optimizer step, in order, with one share for each rank. Steps in which plans for a coming
// change are made are marked as Settling. Measurements may be missing or wrong, ranks silent, shares set by somebody
// else: no policy panics, and what it asks for always divides the batch. A policy is used by one goroutine at a time.
//
// Equal steps give equal decisions on all processors of an architecture, so each rank decides for itself. On unlike architectures
// (compilers for some of them fuse multiplications and additions) a balance may tip: who runs them side by side must compare what they
// decide. Only [Split] is exact everywhere.
//
// # What a decision explains
//
// An [Explanation] names where the time of a step goes: Oracle + Lost.Imbalance + Lost.Noise is what was measured.
// Oracle is the step with the best shares; communication and granularity are parts of it, and so is the time in which
// the slowest rank waits for data. A part that a policy cannot know is NaN. [Marginal] says what a rank is worth.
//
// # Stragglers
//
// [MedianRule] compares ranks with each other. A [Detector] tells a slow type of device from a sick one, by each
// rank's own past and what its device reports of itself.
//
// # Errors
//
// A division that cannot exist is [ErrInfeasible], with how many samples find no place and what each rank could hold.
// Arguments that no caller should pass (a score that is not a positive number, lengths that differ, a curve whose
// points do not ascend) are other errors and name the rank, what was given and what is wanted. Nothing panics on numbers;
// a Step with other than one share for each rank is a fault of the program.
//
// # Sources
//
//   - Oracle: the exact minimum over integer shares by bisection of the time, which rising curves allow: the least time in
//     which the ranks together can do the batch ([Solve]).
//   - Curves: Gaussian-process regression with a linear and a Brownian kernel (Rasmussen and Williams, Gaussian Processes
//     for Machine Learning, 2006, ch. 2), fed by a Kalman filter whose states are the shares that were measured; how much these wander
//     together is learnt from whether its innovations agree with each other, and how much curves bend from all ranks (empirical Bayes).
//   - Outliers within a window: Huber, Robust Estimation of a Location Parameter, 1964.
//   - The formula of dynamic is this project's; performance is per sample and normalised, because in synchronous training
//     the whole iteration takes equally long everywhere and would pull balanced ranks back to equal shares.
//
// [simulate]: https://pkg.go.dev/github.com/hetero-train/hetero-train/balancer/simulate
package balancer
