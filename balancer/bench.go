package balancer

import (
	"cmp"
	"slices"
)

// bench leaves out ranks that hold everybody up: as long as the slowest rank gets no faster with less, and the step is shorter without it.
func (h *hybrid) bench(batch Batch, curves []Curve, best []int) ([]int, error) {
	batch.Limits = batch.limits(len(curves))
	for {
		with, slowest := Slowest(curves, best)
		least := max(batch.Unit, 1)
		if n := best[slowest]; n > least+batch.Total%least && curves[slowest].At(float64(n-least)) < with {
			return best, nil
		}
		limit := batch.Limits[slowest]
		batch.Limits[slowest] = 0
		without, err := Solve(batch, curves)
		if err != nil { // the others cannot hold the batch
			batch.Limits[slowest] = limit
			return best, nil
		}
		if t, _ := Slowest(curves, without); t > with*(1-leastGain) {
			return best, nil
		}
		best = without
	}
}

// release leaves out ranks whose price is more than they are worth: the one that saves most, again and again, as long as the step stays
// within the slowdown. A rank without samples costs nothing.
func (h *hybrid) release(batch Batch, curves []Curve) ([]int, error) {
	best, err := Solve(batch, curves)
	if err != nil {
		return nil, err
	}
	shortest, _ := Slowest(curves, best)
	price := h.price(best)
	limits := batch.limits(len(curves))
	batch.Limits = limits
	for cost := shortest * price; ; {
		var next []int
		least, out := cost*(1-leastGain), -1
		for _, r := range h.dearest(best) {
			limit := limits[r]
			limits[r] = 0
			if without, err := Solve(batch, curves); err == nil {
				t, _ := Slowest(curves, without)
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

// dearest are the ranks that cost most for each of their samples, dearest first: without them most is saved. So few that a decision stays quick.
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

// recalls tries a benched rank again now and then, more and more rarely, since nothing is heard of one without samples. It changes best.
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
		if next, err := Solve(batch, h.curves); err == nil {
			copy(best, next)
			return true
		}
	}
	return false
}

// Worth is what a rank brings.
type Worth struct {
	With, Without float64 // s of the slowest rank's work with the best shares, with and without it; +Inf where the others cannot hold the batch
}

// Marginal says of every rank what it is worth: the best step with it beside the best one without it.
func Marginal(b Batch, curves []Curve) ([]Worth, error) {
	best, err := Solve(b, curves)
	if err != nil {
		return nil, err
	}
	with, _ := Slowest(curves, best)
	out := make([]Worth, len(curves))
	b.Limits = b.limits(len(curves))
	for r, limit := range b.Limits {
		b.Limits[r] = 0
		out[r] = Worth{With: with, Without: inf}
		if without, err := Solve(b, curves); err == nil {
			out[r].Without, _ = Slowest(curves, without)
		}
		b.Limits[r] = limit
	}
	return out, nil
}
