package telemetry

import "math"

// Sample contains one figure per sensor, in the units of Declared. An unknown figure is NaN, never an estimate.
type Sample [Count]float64

// Unknown returns the sample of a machine without telemetry.
func Unknown() (s Sample) {
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

// Bit returns 1 for true and 0 for false: the figure of a sensor that has only these two.
func Bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Rule combines the samples of a window into one figure. Unknown samples do not count.
type Rule int

// The rules.
const (
	Mean     Rule = iota
	Lowest        // of the samples
	Highest       // of the samples
	Increase      // of a counter, over the samples; unknown if no two successive samples are known
)

// Summary contains one figure per sensor for a window. A figure is NaN if no sample had it.
type Summary struct {
	Value   Sample
	Samples [Count]int // number of samples with a known figure
}

// Window collects samples. The zero value is an empty window.
type Window struct {
	figure Sample // sums for Mean
	known  [Count]int
	before Sample // of Increase: the figure of the previous sample; Reset keeps it
	primed bool   // before is valid
}

// Add adds one sample.
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

// increase returns the growth of a counter, NaN if it is unknown or the counter started again.
func increase(before, now float64) float64 {
	if now < before {
		return math.NaN()
	}
	return now - before
}

// Summary returns the figures of the window so far.
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

// Reset starts the next window.
func (w *Window) Reset() { *w = Window{before: w.before, primed: w.primed} }
