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

// Median returns the median of at least one value. For an even number of values, it returns the mean of the two middle
// ones.
func Median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
