package hybrid_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// Ranks of a large type whose memory is full take no samples, although they would be faster with them. The shares with
// full memory are then the best ones, and nothing of their step is lost by imbalance.
func TestTheOracleOfLargeTypesObeysMemoryLimits(t *testing.T) {
	const ranks, total, full = 1000, 8000, 16
	for _, limit := range []int{8, 9} {
		batch := divide.Batch{Total: total, Limits: slices.Repeat([]int{full}, ranks)}
		o := balancer.Options{Batch: batch, Ranks: ranks, Interval: 10, Types: make([]string, ranks)}
		c, best := newCluster(1, 0.02), make([]int, ranks)
		for r := range ranks {
			o.Types[r], best[r] = fmt.Sprint(r/500), full-limit
			if r < 500 {
				o.Limits[r], best[r] = limit, limit
			}
			c.seconds = append(c.seconds, line(0.004, 0.001*float64(1+r/500)))
		}
		p, err := policies.New("hybrid", o)
		if err != nil {
			t.Fatal(err)
		}
		windows := 0
		for step, d := range c.run(p, 60, nil) {
			if d.Unknown != "" || !slices.Equal(d.Shares, best) {
				continue
			}
			windows++
			least := 1.0
			if step < 3 { // one step does not show yet that the slow ranks are equal
				least = 0.95
			}
			if d.OfOracle.Value < least || d.OfOracle.High != 1 {
				t.Errorf("memory for %d samples, step %d with the best shares: got %+v of the oracle, want %v to 1",
					limit, step, d.OfOracle, least)
			}
		}
		if windows < 3 {
			t.Errorf("memory for %d samples: got %d windows with the best shares, want at least 3", limit, windows)
		}
	}
}

// Each rank keeps at least one unit in each division, so a rank with one unit cannot become faster.
func TestTheOracleOfLargeTypesLeavesEachRankAUnit(t *testing.T) {
	const ranks = 128
	for name, slow := range map[string]float64{"equal ranks": 1, "a slow rank": 2.5} {
		o := balancer.Options{Batch: divide.Batch{Total: ranks}, Ranks: ranks, Interval: 10,
			Types: slices.Repeat([]string{"one"}, ranks)}
		c := newCluster(1, 0.01)
		for r := range ranks {
			level := 1.0
			if r == ranks-1 {
				level = slow
			}
			c.seconds = append(c.seconds, line(0.01*level, 0.002*level))
		}
		p, err := policies.New("hybrid", o)
		if err != nil {
			t.Fatal(err)
		}
		windows := 0
		for step, d := range c.run(p, 60, nil) {
			if d.Unknown != "" {
				continue
			}
			windows++
			if d.OfOracle.Value < 0.97 || d.OfOracle.High != 1 {
				t.Errorf("%s, step %d: got %+v of the oracle, want about 1", name, step, d.OfOracle)
			}
		}
		if windows < 3 {
			t.Errorf("%s: got %d windows, want at least 3", name, windows)
		}
	}
}
