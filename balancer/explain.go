package balancer

import "math"

// Explanation says how good the shares are that were in use, in seconds of a step, means over the window.
type Explanation struct {
	Seconds float64 // of a whole step as measured; NaN: not measured
	Oracle  float64 // of a whole step with the best shares, as the fitted curves say; NaN where the policy fits none
	Lost    Lost
	// OfOracle is the time of a step with the best shares divided by that with the shares in use, both as the fitted curves
	// say: the noise of steps is no part of it. Its error is that of the curves.
	OfOracle Fraction
	// Imbalance is (max - min) / max of the ranks' own times, 0…1.
	Imbalance float64
	Ranks     []RankView
}

// Lost names where the time of a step goes beyond what the ranks' arithmetic takes with perfectly divisible samples. NaN: unknown.
type Lost struct {
	Imbalance     float64 // shares are not the best ones
	Communication float64 // exchanges that nothing hides
	Data          float64 // the slowest rank waited for data
	Noise         float64 // the rest: ranks vary from step to step, and the slowest of many is slower than each is by itself
	Granularity   float64 // samples, or groups of them, cannot be cut
}

// RankView is one rank as the policy sees it.
// What was not measured is NaN.
type RankView struct {
	Seconds float64 // of its own time and update; NaN: not measured in this window
	Fitted  float64 // likewise, as its curve says for its share; NaN: no curve
	Error   float64 // standard error of Fitted, s
	Data    float64 // of Seconds, spent waiting for data
	// Utilization and Memory of its device, 0…1.
	Utilization, Memory float64
}

// ShareOfOracle is the value of OfOracle, 0…1; NaN if unknown.
func (e *Explanation) ShareOfOracle() float64 { return e.OfOracle.Value }

// Unexplained is the explanation of a policy that gives none: nothing is known.
func Unexplained(ranks int) Explanation { return newWindow(ranks, 1).explain() }

// explain says what a window shows without curves.
func (w *window) explain() Explanation {
	nan := math.NaN()
	e := Explanation{Seconds: w.seconds.or(nan), Oracle: nan, OfOracle: unknownFraction(), Imbalance: w.spread.or(0), Ranks: make([]RankView, len(w.compute)),
		Lost: Lost{Imbalance: nan, Communication: w.exposed.or(nan), Data: w.waits.or(nan), Noise: nan, Granularity: nan}}
	for r := range e.Ranks {
		e.Ranks[r] = RankView{Seconds: meanOf(w.compute[r]).or(nan), Fitted: nan, Error: nan, Data: w.data[r].or(nan), Utilization: w.use[r].or(nan), Memory: w.memory[r].or(nan)}
	}
	return e
}
