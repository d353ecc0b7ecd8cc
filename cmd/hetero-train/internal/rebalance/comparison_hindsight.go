package rebalance

import (
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// hindsight evaluates shares by the times of all blocks of a comparison, about ten times as many as the oracle is
// computed from.
type hindsight struct {
	best      []int              // shares
	resampled [][]balancer.Curve // lines through resampled blocks; their spread is the uncertainty of the shares
}

func (c *comparison) hindsight() *hindsight {
	const resamples = 400
	h := &hindsight{best: c.best(c.lines(c.measured, c.oracle))}
	random := rand.New(rand.NewPCG(1, 2)) // fixed seed: the same times give the same result
	drawn := make([]measured, len(c.measured))
	for range resamples {
		for i := range drawn {
			drawn[i] = c.measured[random.IntN(len(drawn))]
		}
		h.resampled = append(h.resampled, c.lines(drawn, c.oracle))
	}
	return h
}

// shareOfBest returns the compute time of the best shares divided by that of these shares, and its 95 % interval.
func (h *hindsight) shareOfBest(shares []int) interval {
	ratios := make([]float64, len(h.resampled))
	for i, lines := range h.resampled {
		best, _ := balancer.Slowest(lines, h.best)
		own, _ := balancer.Slowest(lines, shares)
		ratios[i] = best / own
	}
	slices.Sort(ratios)
	n := len(ratios)
	return interval{experiment.Number(ratios[n/2]), experiment.Number(ratios[n/40]), experiment.Number(ratios[n-1-n/40])}
}

// settled counts a candidate's changes until its shares stay within 1 % of the best, according to the measured times;
// -1: never.
func (h *hindsight) settled(p *candidate) int {
	good := func(shares []int) bool { return h.shareOfBest(shares).High >= 0.99 }
	if !good(p.shares) {
		return -1
	}
	bad := len(p.changes) - 1
	for bad >= 0 && good(p.changes[bad]) {
		bad--
	}
	if bad < 0 { // the first change reached this state, or the start was in it
		return min(len(p.changes), 1)
	}
	return bad + 2
}
