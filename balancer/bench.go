package balancer

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// bench excludes ranks that make the step longer. It excludes the slowest rank while fewer samples do not make it
// faster and the step is shorter without it.
func (h *hybrid) bench(batch divide.Batch, curves []divide.Curve, best []int) ([]int, error) {
	batch.Limits = batch.Capacities(len(curves))
	for {
		with, slowest := divide.Slowest(curves, best)
		least := max(batch.Unit, 1)
		if n := best[slowest]; n > least+batch.Total%least && curves[slowest].At(float64(n-least)) < with {
			return best, nil
		}
		limit := batch.Limits[slowest]
		batch.Limits[slowest] = 0
		without, err := divide.Solve(batch, curves)
		if err != nil { // the other ranks cannot hold the batch
			batch.Limits[slowest] = limit
			return best, nil
		}
		if t, _ := divide.Slowest(curves, without); t > with*(1-leastGain) {
			return best, nil
		}
		best = without
	}
}

// release excludes ranks that cost more than they are worth. It repeatedly excludes the rank that saves most, while the
// step stays within the slowdown. A rank without samples costs nothing.
func (h *hybrid) release(batch divide.Batch, curves []divide.Curve) ([]int, error) {
	best, err := divide.Solve(batch, curves)
	if err != nil {
		return nil, err
	}
	shortest, _ := divide.Slowest(curves, best)
	price := h.price(best)
	limits := batch.Capacities(len(curves))
	batch.Limits = limits
	for cost := shortest * price; ; {
		var next []int
		least, out := cost*(1-leastGain), -1
		for _, r := range h.dearest(best) {
			limit := limits[r]
			limits[r] = 0
			if without, err := divide.Solve(batch, curves); err == nil {
				t, _ := divide.Slowest(curves, without)
				if c := t * (price - h.opts.Watts[r]); t <= shortest*(1+h.opts.Slowdown) && c < least {
					next, least, out = without, c, r
				}
			}
			limits[r] = limit
		}
		if out < 0 {
			return best, nil
		}
		best, cost = next, least
		price -= h.opts.Watts[out]
		limits[out] = 0
	}
}

// dearest returns the ranks that cost most per sample, the most expensive first. The list is short, so that a decision
// stays fast.
func (h *hybrid) dearest(shares []int) []int {
	const most = 6
	var ranks []int
	for r, n := range shares {
		if n > 0 {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		return cmp.Compare(h.opts.Watts[b]/float64(shares[b]), h.opts.Watts[a]/float64(shares[a]))
	})
	return ranks[:min(len(ranks), most)]
}

// recalls gives an excluded rank samples again from time to time, because a rank without samples has no measurements.
// The intervals become longer with each attempt. recalls changes best.
func (h *hybrid) recalls(d *Decision, best []int) bool {
	if !h.opts.Bench {
		return false
	}
	for r := range best {
		if best[r] > 0 || !h.fed[r] {
			h.benched[r] = 0
			continue
		}
		if h.benched[r]++; h.benched[r] < h.recall[r] || d.Shares[r] > 0 {
			continue
		}
		h.benched[r], h.recall[r] = 0, 2*h.recall[r]
		batch := h.opts.Batch
		batch.Limits = make([]int, len(best))
		for i := range batch.Limits {
			if best[i] > 0 || i == r {
				batch.Limits[i] = h.most[i]
			}
		}
		if next, err := divide.Solve(batch, h.curves); err == nil {
			copy(best, next)
			return true
		}
	}
	return false
}
