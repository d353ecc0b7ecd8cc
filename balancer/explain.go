package balancer

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// Explanation describes how good the shares in use were. Times are means over the window, in s per step.
type Explanation struct {
	Seconds float64 // measured time of a whole step; NaN: not measured
	Fitted  float64 // of a whole step with the shares in use, on the fitted curves; NaN if there are no curves
	Oracle  float64 // the same with the best shares; at most Fitted
	// Lost divides the measured time into useful work and lost time. Its imbalance agrees with OfOracle. Without
	// curves, it assumes times in proportion to samples.
	Lost account.Account
	// OfOracle is the time of a step with the best shares divided by the time with the shares in use, both on the
	// fitted curves. It does not contain the noise of steps. Its error is the error of the curves.
	OfOracle Fraction
	Unknown  string // why OfOracle is unknown; "" if it is known
	// Imbalance is (max - min) / max of the ranks' own times, 0…1.
	Imbalance float64
	// Equal and Predicted are the times of a step with equal shares and with the next shares, in s: Seconds, changed by the
	// difference of the fitted curves. NaN if there are no curves.
	Equal, Predicted float64
	Noisy            int // rank that causes most of Lost.Noise; -1: no single rank
	Ranks            []RankView
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

// Gain is the throughput divided by the throughput with equal shares, on the same curves; NaN if unknown.
func (e *Explanation) Gain() float64 { return e.Equal / e.Lost.Step }

// Unexplained returns the explanation of a policy that gives none: all its figures are unknown.
func Unexplained(ranks int) Explanation { return newWindow(ranks, 1).explain() }

// explain returns the figures that follow from a window without curves.
func (w *window) explain() Explanation {
	nan := math.NaN()
	e := Explanation{Seconds: nan, Oracle: nan, Equal: nan, Predicted: nan, OfOracle: unknownFraction(), Unknown: "no step-time curves are fitted", Imbalance: w.spread.Or(0), Noisy: w.account.Blame(), Ranks: make([]RankView, len(w.compute))}
	if w.account.Steps() > 0 {
		e.Lost = w.account.Account(account.Unknown(), account.Memory{})
		e.Seconds = e.Lost.Step
	}
	for r := range e.Ranks {
		e.Ranks[r] = RankView{Seconds: stat.MeanOf(w.compute[r]).Or(nan), Fitted: nan, Error: nan, Data: w.data[r].Or(nan), Utilization: w.use[r].Or(nan), Memory: w.memory[r].Or(nan)}
	}
	return e
}
