package account

import (
	"math"
	"slices"
)

// With returns the time that a step would take with other shares, in s. now and then are the times of a step with the
// shares in use and with the other shares, on the same curves. Noise, communication and pauses stay as they are. The
// result is NaN if a time is unknown.
func (a *Account) With(now, then float64) float64 {
	if a.Step == 0 || now != now || then != then {
		return math.NaN()
	}
	return max(a.Step+then-now, 0)
}

// Speedup returns how many times faster a step became: the time before divided by the time after, both without the
// noise of the account before. NaN: unknown.
func Speedup(before *Account, after float64) float64 {
	return speedup(before.Step-before.Noise, after-before.Noise)
}

// Achieved is Speedup for a measured step. Each account contains its own noise.
func Achieved(before, after *Account) float64 {
	return speedup(before.Step-before.Noise, after.Step-after.Noise)
}

func speedup(before, after float64) float64 {
	if !(before > 0 && after > 0) {
		return math.NaN()
	}
	return before / after
}

// worse is the least part by which a step must become longer, and longer than predicted, to count as worse. In noisy
// windows it is the part of a step that is lost to noise.
const worse = 0.03

// Outcome compares the predicted with the achieved speed-up of a change of shares: 1.2 means 1.2 times faster.
type Outcome struct {
	Step      int64   // last step before the change
	Predicted float64 // NaN: unknown
	Achieved  float64
	Noise     float64 // part of a step, 0…1, in the noisier one of both windows
}

// Worse reports whether the change made steps longer, which was not predicted.
func (o Outcome) Worse() bool {
	margin := max(worse, o.Noise)
	return o.Achieved < 1-margin && !(o.Predicted-margin < o.Achieved)
}

// Outcomes compares each change of shares with the window that follows it.
type Outcomes struct {
	waiting   bool
	next      []int
	predicted float64 // s
	step      int64
	before    Account
}

// Add takes a decision: its account, the shares in use and the next shares, and the predicted time of a step with the
// next shares, in s. It returns the outcome of the change before, if the account is the first one with its shares.
func (o *Outcomes) Add(step int64, a *Account, shares, next []int, predicted float64) (outcome Outcome, known bool) {
	if o.waiting && a.Step > 0 && slices.Equal(shares, o.next) {
		outcome = Outcome{o.step, Speedup(&o.before, o.predicted), Achieved(&o.before, a),
			max(o.before.Noise/o.before.Step, a.Noise/a.Step)}
		known, o.waiting = outcome.Achieved == outcome.Achieved, false
	}
	if slices.Equal(shares, next) || a.Step == 0 {
		return outcome, known // a change that is not made yet still waits
	}
	o.waiting, o.step, o.before, o.predicted = true, step, *a, predicted
	o.next = append(o.next[:0], next...)
	return outcome, known
}
