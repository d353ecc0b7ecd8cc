// Package simulate runs balancing policies on known step-time curves. The policies do not see the curves.
//
//	r, err := simulate.Run(simulate.Options{Policy: "hybrid", Total: 256, Curves: curves, Noise: 0.05, Steps: 200, Interval: 10, Seed: 1})
//	r.ShareOfOracle // time with the best shares / time with the last shares
//
// In each step, the time of a rank is the time of its curve at its share, times lognormal noise. The policy sees the
// shares, the limits and these times. There is no communication. The reported times do not include the noise. Like
// package balancer, this package reads no clock and no files, and equal options give equal results.
//
// [ReadCurves] and [WriteCurves] read and write curves as CSV.
package simulate
