package balancer

import "math"

// Explanation describes how good the shares in use were. Times are means over the window, in s per step.
type Explanation struct {
	Seconds float64 // measured time of a whole step; NaN: not measured
	Oracle  float64 // of a whole step with the best shares, on the fitted curves; NaN if the policy fits no curves
	Lost    Lost
	// OfOracle is the time of a step with the best shares divided by the time with the shares in use, both on the
	// fitted curves. It does not contain the noise of steps. Its error is the error of the curves.
	OfOracle Fraction
	// Imbalance is (max - min) / max of the ranks' own times, 0…1.
	Imbalance float64
	Ranks     []RankView
}

// Lost divides the time of a step beyond the pure arithmetic of the ranks, with perfectly divisible samples, into its
// causes. NaN: unknown.
type Lost struct {
	Imbalance     float64 // shares are not the best ones
	Communication float64 // exchanges that nothing hides
	Data          float64 // the slowest rank waited for data
	Noise         float64 // the rest: the times of ranks vary from step to step
	Granularity   float64 // samples, or groups of samples, cannot be divided
}

// RankView is the view that the policy has of one rank. Figures that were not measured are NaN.
type RankView struct {
	Seconds float64 // own time plus update; NaN: not measured in this window
	Fitted  float64 // the same, on the fitted curve of the rank; NaN: no curve
	Error   float64 // standard error of Fitted, s
	Data    float64 // of Seconds, spent waiting for data
	// Utilization and Memory of its device, 0…1.
	Utilization, Memory float64
}

// ShareOfOracle is the value of OfOracle, 0…1; NaN if unknown.
func (e *Explanation) ShareOfOracle() float64 { return e.OfOracle.Value }

// Unexplained returns the explanation of a policy that gives none: all its figures are unknown.
func Unexplained(ranks int) Explanation { return newWindow(ranks, 1).explain() }

// explain returns the figures that follow from a window without curves.
func (w *window) explain() Explanation {
	nan := math.NaN()
	e := Explanation{Seconds: w.seconds.or(nan), Oracle: nan, OfOracle: unknownFraction(), Imbalance: w.spread.or(0), Ranks: make([]RankView, len(w.compute)),
		Lost: Lost{Imbalance: nan, Communication: w.exposed.or(nan), Data: w.waits.or(nan), Noise: nan, Granularity: nan}}
	for r := range e.Ranks {
		e.Ranks[r] = RankView{Seconds: meanOf(w.compute[r]).or(nan), Fitted: nan, Error: nan, Data: w.data[r].or(nan), Utilization: w.use[r].or(nan), Memory: w.memory[r].or(nan)}
	}
	return e
}
