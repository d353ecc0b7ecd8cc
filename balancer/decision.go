package balancer

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/account"
)

// Decision is the decision of a policy after an interval, with its reason. If Explanation.Ranks is empty, the policy
// gave no explanation.
type Decision struct {
	Shares  []int // in use
	Next    []int // from now on
	Changed bool  // Next differs
	Reason  string
	Explanation
}

// Stay sets Next to the shares in use, or to start if these shares are not a valid division of the batch. The caller
// may have set other shares than those of the policy.
func (d *Decision) Stay(o *Options, start []int) {
	d.Next = d.Shares
	if !o.Accepts(d.Shares, start) {
		d.Next, d.Reason = slices.Clone(start),
			"the shares in use are not a valid division of the batch: returning to the start shares"
	}
	d.Changed = !slices.Equal(d.Next, d.Shares)
}

// Explanation describes how good the shares in use were. Times are means over the window, in s per step.
type Explanation struct {
	Seconds float64        // measured time of a whole step; NaN: not measured
	Spread  account.Spread // how exactly Seconds was measured
	Fitted  float64        // of a whole step with the shares in use, on the fitted curves; NaN if there are no curves
	Oracle  float64        // the same with the best shares; at most Fitted
	// Lost divides the measured time into useful work and lost time. Its imbalance agrees with OfOracle. Without
	// curves, it assumes times in proportion to samples.
	Lost account.Account
	// OfOracle is the time of a step with the best shares divided by the time with the shares in use, both on the
	// fitted curves. It does not contain the noise of steps. Its error is the error of the curves.
	OfOracle Fraction
	Unknown  string // why OfOracle is unknown; "" if it is known
	// Disagreement says why OfOracle, the times of the ranks and Imbalance clearly differ; "" if they do not.
	Disagreement string
	// Imbalance is (max - min) / max of the ranks' own times, 0…1.
	Imbalance float64
	// Equal and Predicted are the times of a step with equal shares and with the next shares, in s. Each is Seconds,
	// changed by the difference of the fitted curves; NaN if there are no curves.
	Equal, Predicted float64
	// EqualLow and EqualHigh are the 90 % interval of Equal, from the errors of the curves.
	EqualLow, EqualHigh float64
	EqualUnknown        string // why Equal is unknown: a rank was never measured near its equal share; "" otherwise
	Noisy               int    // rank that causes most of Lost.Noise; -1: no single rank
	// NoiseCause is the cause of Lost.Noise that a sensor of the ranks measures, and NoiseEvidence its evidence. Both
	// are "" if the noise is too small, or if the cause is not determined. Policies leave both empty.
	NoiseCause, NoiseEvidence string
	Ranks                     []RankView
}

// RankView describes one rank as the policy sees it. Values that were not measured are NaN.
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

// Gain is the throughput divided by the throughput with equal shares, on the same curves, with its 90 % interval. NaN:
// unknown.
func (e *Explanation) Gain() (value, low, high float64) {
	return e.Equal / e.Lost.Step, e.EqualLow / e.Lost.Step, e.EqualHigh / e.Lost.Step
}

// GainUnknown is the reason why Gain is unknown; "" if it is known.
func (e *Explanation) GainUnknown() string {
	switch gain, _, _ := e.Gain(); {
	case gain == gain:
		return ""
	case e.EqualUnknown != "":
		return e.EqualUnknown
	case e.Unknown != "":
		return e.Unknown
	}
	return "no whole step was measured"
}

// Unexplained returns the explanation of a policy that gives none: all its values are unknown.
func Unexplained(ranks int) Explanation {
	nan := math.NaN()
	e := Explanation{Seconds: nan, Fitted: nan, Oracle: nan, Equal: nan, EqualLow: nan, EqualHigh: nan, Predicted: nan,
		Spread:   account.Spread{Error: nan},
		OfOracle: UnknownFraction(), Unknown: "no step-time curves are fitted",
		Noisy: -1, Ranks: make([]RankView, ranks)}
	for r := range e.Ranks {
		e.Ranks[r] = RankView{Seconds: nan, Fitted: nan, Error: nan, Data: nan, Utilization: nan, Memory: nan}
	}
	return e
}

// Fraction is an estimate of a fraction, 0…1, with a 90 % interval. The interval is valid only if the curves of the
// policy and their standard errors are right. NaN: unknown.
type Fraction struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// UnknownFraction returns the fraction of a policy without curves.
func UnknownFraction() Fraction { return Fraction{math.NaN(), math.NaN(), math.NaN()} }
