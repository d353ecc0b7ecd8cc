package balancer

import (
	"math"
	"testing"
)

// settled is a hybrid whose ranks were measured at these shares, all of which take 0.1 s, as well as the standard deviations say.
func settled(t *testing.T, shares []int, sigmas []float64) *hybrid {
	t.Helper()
	total := 0
	for _, n := range shares {
		total += n
	}
	h := mustNew(t, "hybrid", Options{Batch: Batch{Total: total}, Ranks: len(shares)}).(*hybrid)
	h.decisions = settledAfter
	for r, n := range shares {
		h.ranks[r].update(float64(n), math.Log(0.1), square(sigmas[r]))
	}
	if missing := h.fit(&Decision{Shares: shares, Explanation: Explanation{Ranks: make([]RankView, len(shares))}}); missing >= 0 {
		t.Fatalf("rank %d has no curve", missing)
	}
	return h
}

// A sample more would take the first rank half again as long. It is hoped to be faster all the same, and must be in the way of no other rank.
func TestProbesLeaveOutWhoseNextSampleIsTooMuch(t *testing.T) {
	now := []int{2, 64, 64, 64}
	next := settled(t, now, []float64{0.3, 0.05, 0.001, 0.001}).probe(now, 0)
	if next == nil || next[0] != 2 || next[1] <= 64 {
		t.Errorf("got %v, want 2 samples for rank 0 and more than 64 for rank 1, of which as little is known", next)
	}
	if next := settled(t, now, []float64{0.3, 0.001, 0.001, 0.001}).probe(now, 0); next != nil {
		t.Errorf("got %v where nothing can be hoped of ranks 1 to 3, want none", next)
	}
}

func TestProbesLastAsNoiseAsks(t *testing.T) {
	for _, test := range []struct {
		noise     float64
		decisions int
		want      int
	}{{0.01, 1000, 1}, {0.2, 10, 1}, {0.2, 200, 10}, {0.2, 1000, 20}, {0.05, 1000, 1}} {
		h := settled(t, []int{64, 64}, []float64{0.01, 0.01})
		for _, e := range h.ranks {
			e.noise, e.jitter = square(test.noise), 0
		}
		if h.decisions = test.decisions; h.probeLasts() != test.want {
			t.Errorf("noise %v, %d decisions: got %d windows, want %d", test.noise, test.decisions, h.probeLasts(), test.want)
		}
	}
}
