package hybrid_test

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// A rank with a CPU quota computes a few samples within one period of the quota, so its time hardly depends on its
// share until the quota is exhausted. Its curve promises much at larger shares. A change that loses instead ends after
// the steps that show this, and is repeated at most once.
func TestAChangeThatLosesEndsWithinItsWindow(t *testing.T) {
	const interval = 25
	quota := func(samples float64) float64 { return 0.05 + max(samples-12, 0)*0.02 }
	for noise, limit := range map[float64]int{0.01: 4, 0.05: 4, 0.1: 8} { // with much noise, more steps show the loss
		worst, often := 0, 0
		for seed := range uint64(10) {
			c := newCluster(seed, noise, line(0.005, 0.002), line(0.005, 0.002), line(0.005, 0.0022), quota)
			p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 128, Unit: 4}, Ranks: 4,
				Interval: interval, Scores: []float64{10, 10, 9, 3}})
			shares := p.Start()
			before, slow, most, changes := 0.0, 0, 0, 0
			for range 600 {
				s, seconds := c.step(shares), 0.0
				for r, n := range shares {
					seconds = max(seconds, c.seconds[r](float64(n)))
				}
				if before == 0 {
					before = seconds
				}
				if slow++; seconds < 1.5*before {
					slow = 0
				}
				if slow == 1 {
					changes++
				}
				if most = max(most, slow); most > worst {
					worst = most
				}
				if d, due := p.Observe(s); due && d.Changed {
					shares = slices.Clone(d.Next)
				}
			}
			often = max(often, changes)
		}
		// The first step with new shares does not count, and two steps show the loss.
		if worst == 0 || worst > limit {
			t.Errorf("noise %v: got up to %d steps in a row with a change that makes steps 1.5 times longer, want 1 to %d",
				noise, worst, limit)
		}
		if often > 2 {
			t.Errorf("noise %v: got up to %d changes in 600 steps that make steps 1.5 times longer, want at most 2",
				noise, often)
		}
	}
}
