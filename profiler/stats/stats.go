// Package stats contains statistical functions for measurements.
package stats

import (
	"math"
	"slices"
)

// Median returns the median of values: the middle value, or the mean of the two middle values. For no values it
// returns NaN. It does not change values.
func Median[F float32 | float64](values []F) F {
	n := len(values)
	if n == 0 {
		return F(math.NaN())
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
