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
//   - rising curves: bisection of the step time (solve.go)
//   - curves with a single minimum: the same, for shares above the minimum (valley.go)
//   - other curves, for example if kernels process blocks (tiles) of samples: dynamic programming over the sums of
//     units that ranks can finish in a given time (jagged.go)
//
// [Split] is exact on every processor architecture; the other results may differ between architectures, because some
// compilers fuse multiplications and additions.
//
// If the ranks together cannot hold the batch, the error is [ErrInfeasible]. It states the number of samples that
// exceed the limits of all ranks together, and the largest share of each rank.
package divide
