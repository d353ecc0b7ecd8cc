package straggler

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
	// A rank is slow if its time exceeds the median of all ranks by this factor. Larger: stragglers are overlooked.
	// Smaller: noise marks ranks.
	slowFactor = 1.5
	// Windows is the number of consecutive slow windows after which a rank is a straggler. Larger: stragglers are found
	// later.
	Windows = 2
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
	limit := slowFactor * m.Median(window)
	for i, seconds := range window {
		if measured(seconds) && seconds > limit {
			m.over[i]++
		} else {
			m.over[i] = 0
		}
		m.marks[i] = m.over[i] >= Windows
	}
	return m.marks
}

// Median returns the median of the ranks with a measurement, or NaN if there are none.
func (m *MedianRule) Median(window []float64) float64 {
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
