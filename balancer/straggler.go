package balancer

import (
	"math"
	"slices"
)

// MedianRule finds stragglers by comparing ranks with each other: a rank is one while its own compute time is over
// 1.5 times the median of all ranks in two windows running ("consistently slow"). The zero value is ready to use.
//
// It cannot tell a slow device from a sick one: a Detector can.
type MedianRule struct {
	over   []int // windows running that each rank has been over
	marks  []bool
	sorted []float64
}

const (
	stragglerFactor  = 1.5
	stragglerWindows = 2
)

// NewMedianRule watches a number of ranks.
func NewMedianRule(ranks int) *MedianRule {
	return &MedianRule{over: make([]int, ranks), marks: make([]bool, ranks)}
}

// Observe takes each rank's own compute time in a window and says which ranks are stragglers.
//
//	window[i]  seconds a step that rank i spent on data, forward and backward, without waiting for others; mean over the
//	           window. A rank without samples or without a measurement is NaN or 0: it is left out of the median, is no
//	           straggler, and begins anew when it comes back.
//
// The median of an even number of ranks is the lower middle one. A number of ranks other than before begins anew. The
// answer is valid until the next call.
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

// median is that of the ranks that measured something, NaN where none did.
func (m *MedianRule) median(window []float64) float64 {
	m.sorted = m.sorted[:0]
	for _, seconds := range window {
		if measured(seconds) {
			m.sorted = append(m.sorted, seconds)
		}
	}
	return lowerMiddle(m.sorted)
}

// measured is false for what stands for "no measurement": NaN, infinities, and times that are not above 0.
func measured(seconds float64) bool { return seconds > 0 && !math.IsInf(seconds, 1) }

// lowerMiddle is the median, of an even number of values the lower of the two in the middle, NaN of none. It sorts them.
func lowerMiddle(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// Waiting adds up over a window of steps who waited for whom. In synchronous training all ranks of a step wait for its
// slowest one, so that whom a rank waited for is known from the steps' compute times alone.
type Waiting struct {
	// Seconds[i] is how long rank i waited for slower ranks, Caused[i] how long all others together waited for rank i,
	// Slowest[i] in how many steps rank i was the one waited for (of equally slow ones the lowest rank). Sums over Steps.
	Seconds, Caused []float64
	Slowest         []int
	Steps           int // that at least two ranks measured

	imbalance float64 // sum over steps
}

// Add takes the compute times of one step, as seconds of each rank without waiting for others. A rank that is NaN or 0
// had no samples or no measurement and is left out. A number of ranks other than before begins anew.
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

// Imbalance is the load imbalance: (max-min)/max of the ranks' compute times, mean over the steps; 0 where nothing was
// measured.
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
