// Package divide divides a batch among ranks whose step times are known.
//
// A [Curve] is the time of a rank as a function of its share. A [Batch] states the number of samples, the largest share
// of each rank, and the unit of which shares are multiples. Shares are integers, and their sum is the batch.
//
//	shares, err := divide.Solve(batch, curves)               // shortest time of the slowest rank
//	shares, err := divide.Cheapest(batch, curves, busy, idle, 0.1) // least energy, at most 10 % slower
//	shares, err := batch.Divide(speed)                       // in proportion to speed
//
// [Solve] is exact on all curves. It selects one of three algorithms:
//
//   - rising curves: bisection of the step time (fill.go)
//   - curves with a single minimum: the same, for shares above the minimum (valley.go)
//   - other curves, for example if kernels process blocks (tiles) of samples: dynamic programming over the sums of
//     units that ranks can finish in a given time (jagged.go)
//
// [Split] is exact on every processor architecture; the other results may differ between architectures, because some
// compilers fuse multiplications and additions.
//
// If the ranks together cannot hold the batch, the error is [ErrInfeasible]. It states the number of samples that
// exceed the limits of all ranks together, and the largest share of each rank.
//
// Each file uses only files below it in this list:
//
//	marginal.go       worth of each rank
//	cost.go           least energy or cost
//	solve.go          shortest step
//	divisible.go      shortest step, if shares could be any real numbers
//	jagged.go         curves of any form
//	jagged_search.go  search for the time of a division
//	jagged_divide.go  division within a time
//	jagged_guess.go   time to start from, by a sample of the ranks
//	shared_times.go   times of ranks that share the points of their curves
//	times.go          times by units
//	slowest.go        heap of ranks
//	sums.go           sets of numbers of units
//	valley.go         curves with a single minimum
//	fill.go           rising curves
//	scaled.go         curves with factors
//	curve.go          step-time curves
//	batch.go          batch, limits and units
//	split.go          shares in proportion to speed
package divide
