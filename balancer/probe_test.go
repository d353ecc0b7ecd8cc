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
		noise, jitter       float64 // of a step, and of a window besides
		decisions, patience int
		want                int
	}{{0.01, 0, 1000, 100, 1}, {0.2, 0, 10, 100, 1}, {0.2, 0, 200, 100, 10}, {0.2, 0, 1000, 100, 20}, {0.2, 0, 1000, 6, 6}, {0.05, 0, 1000, 100, 1}, {0.05, 0.05, 1000, 100, 14}} {
		h := settled(t, []int{64, 64}, []float64{0.01, 0.01})
		for _, e := range h.ranks {
			e.noise, e.jitter = square(test.noise), square(test.jitter)
		}
		h.decisions, h.patience = test.decisions, test.patience
		if got := h.probeLasts(); got != test.want {
			t.Errorf("%+v: got %d windows", test, got)
		}
	}
}

func TestProbesGoOnUntilTheyAreOver(t *testing.T) {
	now := []int{64, 64, 64, 64}
	h := settled(t, now, []float64{0.05, 0.001, 0.001, 0.001})
	h.probing = 3
	for i := range 2 {
		if next := h.goOn(now, now, 0); next == nil || next[0] <= 64 {
			t.Errorf("window %d: got %v, want more than 64 samples for rank 0", i, next)
		}
	}
	over := func(when string, best []int, cost float64) {
		t.Helper()
		if next := h.goOn(now, best, cost); next != nil || h.probing != 0 {
			t.Errorf("%s: got %v and %d more windows, want an end", when, next, h.probing)
		}
	}
	over("after the last window", now, 0)
	h.probing = 3
	over("where a rank is to be left out", []int{64, 64, 128, 0}, 0)
	h.probing = 3
	over("where a change costs more than it can bring", now, 1)
}

// Of many ranks that are nearly right one is far too slow. What limits a slowdown is the shortest step itself.
func TestManyRanksAreDividedWithCaution(t *testing.T) {
	for _, objective := range []Objective{Time, Energy} {
		for _, decisions := range []int{settledAfter - 1, settledAfter} {
			h := settled(t, []int{64, 64}, []float64{0.05, 0.05})
			h.opts.Objective, h.decisions = objective, decisions
			h.fit(&Decision{Shares: []int{64, 64}, Explanation: Explanation{Ranks: make([]RankView, 2)}})
			if cautious := h.sure[0].At(64) > h.curves[0].At(64); cautious != (objective == Time && decisions == settledAfter) {
				t.Errorf("%v after %d decisions: cautious is %v", objective, decisions, cautious)
			}
		}
	}
}
