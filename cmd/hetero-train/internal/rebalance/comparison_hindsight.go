package rebalance

import (
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// hindsight evaluates shares with the times of all blocks of a comparison, after its end. The oracle was computed from
// about the first tenth of these blocks.
type hindsight struct {
	best []int // shares with the shortest step according to all blocks
	// lines fitted to bootstrap samples of the blocks; their spread gives the uncertainty of a ratio of step times
	resampled [][]divide.Curve
}

func (c *comparison) hindsight() *hindsight {
	const resamples = 400
	h := &hindsight{best: c.best(fitLines(c.measured, c.oracle, c.options.Total))}
	random := rand.New(rand.NewPCG(1, 2)) // fixed seed, so that equal times give equal results
	drawn := make([]measured, len(c.measured))
	for range resamples {
		for i := range drawn {
			drawn[i] = c.measured[random.IntN(len(drawn))]
		}
		h.resampled = append(h.resampled, fitLines(drawn, c.oracle, c.options.Total))
	}
	return h
}

// shareOfBest returns the compute time of the best shares divided by the compute time of the given shares, with the 95
// % interval.
func (h *hindsight) shareOfBest(shares []int) interval {
	ratios := make([]float64, len(h.resampled))
	for i, lines := range h.resampled {
		best, _ := divide.Slowest(lines, h.best)
		own, _ := divide.Slowest(lines, shares)
		ratios[i] = best / own
	}
	slices.Sort(ratios)
	n := len(ratios)
	return interval{experiment.Number(ratios[n/2]), experiment.Number(ratios[n/40]),
		experiment.Number(ratios[n-1-n/40])}
}

// settled returns the number of changes after which the shares of a candidate stay within 1 % of the best time. It
// returns -1 if the last shares do not reach this range.
func (h *hindsight) settled(p *candidate) int {
	good := func(shares []int) bool { return h.shareOfBest(shares).High >= 0.99 }
	if !good(p.shares) {
		return -1
	}
	bad := len(p.changes) - 1
	for bad >= 0 && good(p.changes[bad]) {
		bad--
	}
	if bad < 0 { // the start or the first change reached the range
		return min(len(p.changes), 1)
	}
	return bad + 2
}
