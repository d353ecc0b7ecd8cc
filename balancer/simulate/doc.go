// Package simulate plays balancing policies against step-time curves that are known to it, but not to them.
//
//	r, err := simulate.Run(simulate.Options{Policy: "hybrid", Total: 256, Curves: curves, Noise: 0.05, Steps: 200, Interval: 10, Seed: 1})
//	r.ShareOfOracle // how near the last shares come to the best ones
//
// Each step every rank takes the time that its curve says for its share, times lognormal noise; the policy sees shares, limits
// and these times. There is no communication. What is reported is without noise. Like package balancer it has no clock and reads no files, and equal
// options give equal results.
//
// [ReadCurves] and [WriteCurves] are the CSV form of curves.
package simulate
