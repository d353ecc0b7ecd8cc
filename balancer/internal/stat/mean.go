package stat

import (
	"math"
	"slices"
)

// Mean is a running mean that ignores NaN.
type Mean struct {
	Sum float64
	N   int
}

// Add adds a value.
func (m *Mean) Add(v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		m.Sum, m.N = m.Sum+v, m.N+1
	}
}

// MeanOf returns the mean of all values.
func MeanOf(values []float64) (m Mean) {
	for _, v := range values {
		m.Add(v)
	}
	return m
}

// Or returns the mean, or otherwise if there are no values.
func (m Mean) Or(otherwise float64) float64 {
	if m.N == 0 {
		return otherwise
	}
	return m.Sum / float64(m.N)
}

// Square returns x².
func Square(x float64) float64 { return x * x }

// MADToSigma times the median absolute deviation of normal values is their standard deviation.
const MADToSigma = 1.4826

// Median returns the median of at least one value. For an even number of values, it returns the mean of the two middle
// ones.
func Median(values []float64) float64 {
	if len(values) <= few {
		return medianOfFew(values)
	}
	var room [64]float64
	sorted, n := append(room[:0], values...), len(values)
	if n > len(room) && !slices.ContainsFunc(sorted, math.IsNaN) { // NaN has no order
		selectMiddle(sorted)
	} else {
		slices.Sort(sorted)
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// few is the number of values up to which medianOfFew is faster. The window of a rank usually has ten values.
const few = 12

// medianOfFew sorts the values by insertion, NaN first.
func medianOfFew(values []float64) float64 {
	var sorted [few]float64
	n := len(values)
	for i, v := range values {
		at := i
		for ; at > 0 && (v < sorted[at-1] || v != v && sorted[at-1] == sorted[at-1]); at-- {
			sorted[at] = sorted[at-1]
		}
		sorted[at] = v
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// selectMiddle reorders values so that the middle ones are those of the sorted list. It takes a time in proportion to
// the number of values (quickselect).
func selectMiddle(values []float64) {
	first, last := (len(values)-1)/2, len(values)/2
	low, high := 0, len(values) // the middle ones are in this part
	for rounds := 0; high-low > 32 && rounds < 64; rounds++ {
		// the pivot is the median of three
		a, b, c := values[low], values[low+(high-low)/2], values[high-1]
		pivot := max(min(a, b), min(max(a, b), c))
		i, j := low, high-1
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case last <= j:
			high = j + 1
		case first >= i:
			low = i
		case first > j && last < i: // equal to the pivot
			return
		default: // the two middle ones are on different sides
			rounds = 64
		}
	}
	slices.Sort(values[low:high])
}
