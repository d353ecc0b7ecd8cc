package task

import (
	"math"
	"testing"
)

// The expected values are those of sklearn.metrics.average_precision_score.
func TestAveragePrecision(t *testing.T) {
	r := NewRanking(3)
	for i, score := range []float64{0.1, 0.4, 0.35, 0.8} {
		r.Add(0, score, i >= 2)
	}
	for i, score := range []float64{0.5, 0.5, 0.2, 0.9, 0.5} { // equal scores
		r.Add(1, score, i%2 == 0)
	}
	r.Add(2, 1, false) // no sample has class 2
	byClass, mean, known := r.AveragePrecision()
	if !known || math.Abs(byClass[0]-5.0/6) > 1e-15 || math.Abs(byClass[1]-8.0/15) > 1e-15 || !math.IsNaN(byClass[2]) ||
		math.Abs(mean-(5.0/6+8.0/15)/2) > 1e-15 {
		t.Errorf("got %v, mean %v, want 0.833, 0.533 and NaN, mean 0.683", byClass, mean)
	}
	r.Add(0, math.NaN(), true)
	if _, _, known := r.AveragePrecision(); known {
		t.Error("got an average precision of scores that are NaN")
	}
	if _, _, known := NewRanking(2).AveragePrecision(); known {
		t.Error("got an average precision without samples")
	}
}
