package telemetry

import "math"

// Sample contains one value per sensor, in the units of Declared. A value is NaN if it is unknown. A Sample contains no
// estimates.
type Sample [Count]float64

// Unknown returns a sample whose values are all unknown.
func Unknown() (s Sample) {
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

// Bit returns 1 for true and 0 for false, the values of sensors such as PowerLimit.
func Bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Rule is a method to combine the samples of a window into one value. Unknown samples are ignored.
type Rule int

// Rules for the values of a window.
const (
	Mean Rule = iota
	Lowest
	Highest
	Increase // total increase of a counter; NaN if no two successive samples are known
)

// Summary contains one value per sensor for a window. A value is NaN if all samples are unknown.
type Summary struct {
	Value   Sample
	Samples [Count]int // number of known samples, by sensor
}

// Window collects the samples of a window. The zero value is an empty window.
type Window struct {
	figure Sample // value so far: a sum for rules Mean and Increase, else an extreme value
	known  [Count]int
	before Sample // for rule Increase: value of the previous sample, which Reset keeps
	primed bool   // true if before is set
}

// Add adds one sample to the window.
func (w *Window) Add(s *Sample) {
	if !w.primed {
		w.before, w.primed = Unknown(), true
	}
	for i, v := range s {
		if Declared[i].Window == Increase {
			v, w.before[i] = increase(w.before[i], v), v
		}
		if math.IsNaN(v) {
			continue
		}
		if w.known[i]++; w.known[i] == 1 {
			w.figure[i] = v
			continue
		}
		switch Declared[i].Window {
		case Lowest:
			w.figure[i] = min(w.figure[i], v)
		case Highest:
			w.figure[i] = max(w.figure[i], v)
		case Mean, Increase:
			w.figure[i] += v
		}
	}
}

// increase returns the increase of a counter. It returns NaN if a value is unknown or the counter has restarted.
func increase(before, now float64) float64 {
	if now < before {
		return math.NaN()
	}
	return now - before
}

// Summary returns the values of the samples since the last Reset.
func (w *Window) Summary() Summary {
	out := Summary{Value: Unknown(), Samples: w.known}
	for i, n := range w.known {
		if n == 0 {
			continue
		}
		if out.Value[i] = w.figure[i]; Declared[i].Window == Mean {
			out.Value[i] /= float64(n)
		}
	}
	return out
}

// Reset begins the next window.
func (w *Window) Reset() { *w = Window{before: w.before, primed: w.primed} }
