package scheduler

import (
	"math"
	"testing"
)

func TestHyperScore(t *testing.T) {
	for _, c := range []struct{ v, want float64 }{
		{1, 109.955}, // the score at sigma = 1/3
		{2, 100 * (1 + math.Pow(16.0/17, 2.1))},
		{1e-9, 100}, // the lower limit of scores
		{1e9, 200},  // the upper limit of scores
	} {
		got, err := HyperScore(c.v)
		if err != nil || math.Abs(got-c.want) > 5e-4 {
			t.Errorf("HyperScore(%v) = %v, %v, want %v", c.v, got, err, c.want)
		}
	}
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if got, err := HyperScore(v); err == nil {
			t.Errorf("HyperScore(%v) = %v, want an error", v, got)
		}
	}
}
