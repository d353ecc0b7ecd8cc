package policies_test

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

func TestDynamicHalvesAConsistentStraggler(t *testing.T) {
	scores := []float64{1, 1, 1, 1}
	p, err := policies.New("dynamic", balancer.Options{Batch: divide.Batch{Total: 400}, Ranks: 4, Interval: 10,
		Scores: scores})
	if err != nil {
		t.Fatal(err)
	}
	// With equal shares, rank 3 takes 1.6 times the median. If the caller ignores the decided shares, rank 3 still
	// takes more than 1.5 times the median.
	times, none := []float64{0.001, 0.001, 0.001, 0.0016}, []float64{0, 0, 0, 0}
	equal := p.Start()
	for window, straggler := range []bool{false, true, true} {
		d := decide(t, p, steady(times, nil, nil), equal)
		want := formula(400, scores, times, none, none, []bool{false, false, false, straggler})
		if !slices.Equal(d.Next, want) {
			t.Errorf("window %d: got %v, want %v", window, d.Next, want)
		}
	}
	// At 1.45 times the median, between the bounds of the hysteresis, the rank remains a straggler. After two windows
	// below the lower bound, it is no longer one.
	between, fast := []float64{0.001, 0.001, 0.001, 0.00145}, []float64{0.001, 0.001, 0.001, 0.0012}
	for window, now := range []struct {
		times     []float64
		straggler bool
	}{{between, true}, {between, true}, {fast, true}, {between, true}, {fast, true}, {fast, false}, {times, false},
		{times, true}} {
		d := decide(t, p, steady(now.times, nil, nil), equal)
		want := formula(400, scores, now.times, none, none, []bool{false, false, false, now.straggler})
		if !slices.Equal(d.Next, want) {
			t.Errorf("window %d after it was one: got %v, want %v", window, d.Next, want)
		}
	}
}
