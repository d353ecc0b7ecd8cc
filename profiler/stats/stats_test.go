package stats

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 9, 2}, 3},
	} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want || !slices.Equal(c.values, before) {
			t.Errorf("%v: got %v, want %v; values after: %v", before, got, c.want, c.values)
		}
	}
	if got := Median[float32](nil); !math.IsNaN(float64(got)) {
		t.Errorf("no values: got %v, want NaN", got)
	}
}
