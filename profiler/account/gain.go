package account

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// With returns the time that a step would take with other shares, in s. current and other are the times that the same
// curves predict for the shares in use and for the other shares. With adds other - current to the measured step, so
// noise, communication and pauses stay the same. If current is longer than the measured step, With multiplies the
// measured step by other / current instead. The result is NaN if a time is unknown.
func (a *Account) With(current, other float64) float64 {
	if a.Step == 0 || current != current || other != other {
		return math.NaN()
	}
	if current > a.Step { // the curves overestimate current; assume the same factor for other
		return a.Step * other / current
	}
	return a.Step + other - current
}

// Speedup returns how many times faster a step became: the old step time divided by the new one. It subtracts the noise
// of the account before from both times. NaN: unknown.
func Speedup(before *Account, after float64) float64 {
	return speedup(before.Step-before.Noise, after-before.Noise)
}

// Achieved is like Speedup, but for two measured steps: it subtracts from each step time its own noise.
func Achieved(before, after *Account) float64 {
	return speedup(before.Step-before.Noise, after.Step-after.Noise)
}

func speedup(before, after float64) float64 {
	if !(before > 0 && after > 0) {
		return math.NaN()
	}
	return before / after
}

// GainText states a gain over equal shares and its 90 % interval. If the interval is unknown, its ends are NaN.
func GainText(gain, low, high float64) string {
	text, interval := fmt.Sprintf("%.2f", gain), ""
	if low == low && high == high {
		interval = fmt.Sprintf(" (%.2f to %.2f)", low, high)
	}
	switch {
	case text == "1.00" && interval == " (1.00 to 1.00)":
		return "as fast as equal shares"
	case text == "1.00":
		return "as fast as equal shares" + interval
	case gain < 1:
		return text + " times the speed of equal shares" + interval
	}
	return text + " times faster than equal shares" + interval
}

// confidence is the probability that the interval of an outcome contains the long-run speed-up of the change of shares.
const confidence = 0.9

// Spread states how precisely a window measured the mean time of a step.
type Spread struct {
	Steps int
	Error float64 // standard error of the mean time of a step, as a fraction of this time; NaN: fewer than two steps
}

// Outcome compares the predicted with the achieved speed-up of a change of shares: 1.2 means 1.2 times faster.
type Outcome struct {
	Step      int64   // last step before the change
	Predicted float64 // NaN: unknown
	Achieved  float64
	Low, High float64 // 90 % interval of Achieved. It grows with the spread of the steps in both windows, and with the
	// differences between earlier windows whose shares did not change
}

// leastWorse is the loss of speed, as a fraction, above which a change counts as worse. A larger value hides small
// losses.
const leastWorse = 0.01

// Worse reports whether the whole interval of the achieved speed-up is below 1-leastWorse, and below the predicted
// speed-up if that is known.
func (o Outcome) Worse() bool { return o.High < 1-leastWorse && !(o.Predicted <= o.High) }

// Outcomes compares each change of shares with the window that follows it.
type Outcomes struct {
	waiting   bool
	next      []int
	predicted float64 // s
	step      int64
	before    measured
	last      measured  // newest window
	shares    []int     // shares in the newest window
	varied    []float64 // absolute log speed-ups between successive windows with the same shares; the newest mostVaried
}

// measured is a window with a measured time.
type measured struct {
	account Account
	spread  Spread
}

// mostVaried is the number of differences between windows that Outcomes stores. With a larger value, the intervals
// adapt later to a change of the noise.
const mostVaried = 100

// Add takes the account of a decision and its spread, the shares in use, the next shares, and the predicted time of a
// step with the next shares, in s. If the account is the first one after a change of shares, Add returns the outcome of
// this change.
func (o *Outcomes) Add(step int64, a *Account, spread Spread, shares, next []int, predicted float64) (outcome Outcome,
	known bool) {
	now := measured{*a, spread}
	if o.waiting && a.Step > 0 && slices.Equal(shares, o.next) {
		outcome = Outcome{Step: o.step, Predicted: Speedup(&o.before.account, o.predicted),
			Achieved: Achieved(&o.before.account, a)}
		margin := math.Exp(o.margin(&o.before, &now))
		outcome.Low, outcome.High = outcome.Achieved/margin, outcome.Achieved*margin
		known, o.waiting = outcome.Achieved == outcome.Achieved, false
	} else if a.Step > 0 && slices.Equal(shares, o.shares) {
		o.vary(&now)
	}
	if a.Step > 0 {
		o.last, o.shares = now, append(o.shares[:0], shares...)
	}
	if slices.Equal(shares, next) || a.Step == 0 {
		return outcome, known // an earlier change without an outcome stays pending
	}
	o.waiting, o.step, o.before, o.predicted = true, step, now, predicted
	o.next = append(o.next[:0], next...)
	return outcome, known
}

// vary stores the difference between the window now and the previous window. Both have the same shares.
func (o *Outcomes) vary(now *measured) {
	if off := math.Abs(math.Log(Achieved(&o.last.account, &now.account))); off == off {
		if o.varied = append(o.varied, off); len(o.varied) > mostVaried {
			o.varied = slices.Delete(o.varied, 0, 1)
		}
	}
}

// margin returns the log of the factor by which the speed-up from one window to another may be wrong. It is the larger
// of two values. The first is half the width of Student's interval from the steps of both windows. The second is the
// difference that 90 % of the earlier pairs of windows with unchanged shares do not exceed. The steps of a window are
// correlated, so Student's interval alone is too narrow.
func (o *Outcomes) margin(before, after *measured) float64 {
	margin := math.Inf(1)
	b, a := before.spread, after.spread
	if variance := b.Error*b.Error + a.Error*a.Error; variance == 0 {
		margin = 0
	} else if b.Steps > 1 && a.Steps > 1 {
		// degrees of freedom (Welch)
		free := variance * variance / (math.Pow(b.Error, 4)/float64(b.Steps-1) +
			math.Pow(a.Error, 4)/float64(a.Steps-1))
		margin = distuv.StudentsT{Sigma: 1, Nu: free}.Quantile((1+confidence)/2) * math.Sqrt(variance)
	}
	if n := len(o.varied); n > 0 {
		sorted := slices.Sorted(slices.Values(o.varied))
		margin = max(margin, sorted[int(math.Ceil(confidence*float64(n)))-1])
	}
	return margin
}
