// Package stats contains the statistics that several packages of measurements use.
package stats

import (
	"math"
	"slices"
)

// Median returns the median of values, the mean of the two middle values if their number is even, and NaN for none. It
// does not change values.
func Median[F float32 | float64](values []F) F {
	n := len(values)
	if n == 0 {
		return F(math.NaN())
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
