package task

import (
	"math"
	"testing"
)

// The expected values are those of sklearn.metrics.f1_score, with average="macro" for three classes.
func TestF1(t *testing.T) {
	for _, c := range []struct {
		classes           int
		labels, predicted []int
		want              float64
	}{
		{2, []int{0, 1, 1, 0, 1}, []int{0, 1, 0, 1, 1}, 2.0 / 3},
		{2, []int{0, 0, 0}, []int{0, 0, 0}, 0},
		{2, []int{1, 1}, []int{1, 1}, 1},
		{2, nil, nil, 0},
		{3, []int{0, 1, 2, 2, 1}, []int{0, 2, 2, 1, 1}, (1 + 0.5 + 0.5) / 3},
		{3, []int{0, 0, 1}, []int{0, 1, 1}, (2.0/3 + 2.0/3) / 2}, // class 2 does not occur
		{3, []int{0, 1}, []int{-1, 1}, 0.5},                      // a target whose scores are not finite is a miss
	} {
		confusion := NewConfusion(c.classes)
		for i, label := range c.labels {
			confusion.Count(label, c.predicted[i])
		}
		if got := confusion.F1(); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%v as %v: got %v, want %v", c.labels, c.predicted, got, c.want)
		}
		confusion.Reset()
		if got := confusion.F1(); got != 0 {
			t.Errorf("after Reset: got %v, want 0", got)
		}
	}
}
