package balancer

import (
	"math"
	"slices"
)

// MedianRule finds stragglers by comparing ranks with each other. A rank is a straggler while its own compute time is
// over 1.5 times the median of all ranks in two consecutive windows ("consistently slow"). The zero value is ready to
// use.
//
// It cannot distinguish a slow device from a sick device; a Detector can.
type MedianRule struct {
	over   []int // consecutive windows in which each rank was over the threshold
	marks  []bool
	sorted []float64
}

const (
	stragglerFactor  = 1.5
	stragglerWindows = 2
)

// NewMedianRule returns a MedianRule for a number of ranks.
func NewMedianRule(ranks int) *MedianRule {
	return &MedianRule{over: make([]int, ranks), marks: make([]bool, ranks)}
}

// Observe takes each rank's own compute time in a window and returns which ranks are stragglers.
//
//	window[i]  seconds per step that rank i spent on data, forward and backward, without waits for other ranks; mean over
//	           the window. NaN or 0 is a rank without samples or without a measurement: Observe leaves it out of the
//	           median, does not report it as a straggler, and resets its history.
//
// The median of an even number of ranks is the lower middle one. If the number of ranks changes, Observe resets the
// history of all ranks. The result is valid until the next call.
func (m *MedianRule) Observe(window []float64) []bool {
	if len(window) != len(m.over) {
		m.over, m.marks = make([]int, len(window)), make([]bool, len(window))
	}
	limit := stragglerFactor * m.median(window)
	for i, seconds := range window {
		if measured(seconds) && seconds > limit {
			m.over[i]++
		} else {
			m.over[i] = 0
		}
		m.marks[i] = m.over[i] >= stragglerWindows
	}
	return m.marks
}

// median returns the median of the ranks with a measurement, or NaN if there are none.
func (m *MedianRule) median(window []float64) float64 {
	m.sorted = m.sorted[:0]
	for _, seconds := range window {
		if measured(seconds) {
			m.sorted = append(m.sorted, seconds)
		}
	}
	return lowerMiddle(m.sorted)
}

// measured reports whether a time is a measurement: not NaN, not infinite, and above 0.
func measured(seconds float64) bool { return seconds > 0 && !math.IsInf(seconds, 1) }

// lowerMiddle sorts values and returns their median. For an even number of values, it returns the lower of the two
// middle values; for none, NaN.
func lowerMiddle(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// Waiting sums over a window how long ranks waited for each other. In synchronous training, all ranks of a step wait
// for the slowest rank, so the compute times of the steps determine all waits.
type Waiting struct {
	// Sums over Steps: Seconds[i] is the time that rank i waited for slower ranks. Caused[i] is the total time that
	// other ranks waited for rank i. Slowest[i] is the number of steps in which rank i was the slowest rank; ties go to
	// the lower rank.
	Seconds, Caused []float64
	Slowest         []int
	Steps           int // steps that at least two ranks measured

	imbalance float64 // sum over steps
}

// Add takes the compute times of one step, in s for each rank, without waits for other ranks. NaN or 0 is a rank
// without samples or without a measurement, which Add leaves out. If the number of ranks changes, the sums start again.
func (w *Waiting) Add(step []float64) {
	if len(step) != len(w.Seconds) {
		*w = Waiting{Seconds: make([]float64, len(step)), Caused: make([]float64, len(step)), Slowest: make([]int, len(step))}
	}
	slowest, least, ranks := -1, math.Inf(1), 0
	for i, seconds := range step {
		if !measured(seconds) {
			continue
		}
		ranks++
		least = min(least, seconds)
		if slowest < 0 || seconds > step[slowest] {
			slowest = i
		}
	}
	if ranks < 2 {
		return
	}
	most := step[slowest]
	for i, seconds := range step {
		if measured(seconds) {
			w.Seconds[i] += most - seconds
			w.Caused[slowest] += most - seconds
		}
	}
	w.Slowest[slowest]++
	w.Steps++
	w.imbalance += (most - least) / most
}

// Imbalance is the load imbalance: (max-min)/max of the ranks' compute times, mean over the steps; 0 without
// measurements.
func (w *Waiting) Imbalance() float64 {
	if w.Steps == 0 {
		return 0
	}
	return w.imbalance / float64(w.Steps)
}

// Reset begins the next window.
func (w *Waiting) Reset() {
	clear(w.Seconds)
	clear(w.Caused)
	clear(w.Slowest)
	w.Steps, w.imbalance = 0, 0
}
