package hybrid_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// With units, a probe must not give a rank a share that is known.
func TestProbesOfFallsEndWithUnits(t *testing.T) {
	for _, unit := range []int{1, 8, 32} {
		probes := 0
		for seed := range uint64(3) {
			c := newCluster(seed, 0.03, line(0.1, 0.0002), line(0.05, 0.0003), line(0, 0.0001))
			decisions := c.run(mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 512, Unit: unit},
				Ranks: 3}), 1000, nil)
			for _, d := range decisions {
				if d.Changed && strings.HasPrefix(d.Reason, "a probe (trial of other shares): larger") {
					probes++
				}
			}
		}
		t.Logf("unit %d: %d probes of falls", unit, probes)
		if probes == 0 || probes > 30 { // repeated probes of known shares were 54
			t.Errorf("unit %d: got %d probes of falls in 300 windows, want 1 to 30", unit, probes)
		}
	}
}

// The other rank needs some samples of a batch, so the probe cannot give a rank all others.
func TestHybridFindsAFallAtMostOfTheBatch(t *testing.T) {
	for seed := range uint64(5) {
		c := newCluster(seed, 0.03, func(samples float64) float64 {
			if samples < 300 {
				return 0.1
			}
			return 0.05
		}, line(0, 0.00001))
		decisions := c.run(mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 512}, Ranks: 2}), 800, nil)
		if end := last(decisions).Next; end[0] < 300 {
			t.Errorf("seed %d: ends with %v, want at least 300 samples for rank 0", seed, end)
		}
	}
}

// Two lines have no tiles, and after some windows all shares near the best ones are known.
func TestProbesOfTilesTryNewShares(t *testing.T) {
	for seed := range uint64(12) {
		c := newCluster(seed, 0.2, line(0.002, 0.0027), line(0.002, 0.0042))
		decisions := c.run(mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2}), 900, nil)
		var tried [][]int
		for step := range 900 {
			d, ok := decisions[step]
			if !ok || !d.Changed ||
				!strings.HasPrefix(d.Reason, "a probe (trial of other shares): these shares may fill") {
				continue
			}
			tried = append(tried, slices.Clone(d.Next))
		}
		times := map[int]int{}
		for _, shares := range tried {
			times[shares[0]]++
		}
		for share, n := range times {
			if n > 2 { // the first window of a share can be a short one
				t.Errorf("seed %d: %d probes of %d samples for rank 0, want at most 2; all: %v", seed, n, share, tried)
			}
		}
	}
}

// The one or two steps of the first window say little about the ranks, so no probe follows it.
func TestNoProbeFollowsTheFirstWindow(t *testing.T) {
	for seed := range uint64(20) {
		p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 256}, Ranks: 4})
		c := newCluster(seed, 0.05, equalRanks(4)...)
		d, ok := p.Observe(c.step(p.Start()))
		if !ok || strings.HasPrefix(d.Reason, "a probe") {
			t.Errorf("seed %d: got %+v (decision: %v), want a decision without a probe", seed, d, ok)
		}
	}
}
