package hybrid

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// best returns the best shares on curves for the objective.
func (c *chooser) best(batch divide.Batch, curves []divide.Scaled) (best []int, err error) {
	switch {
	case c.opts.Objective == balancer.Energy:
		return divide.Cheapest(batch, divide.Wholes(curves), c.opts.Watts, c.opts.IdleWatts, c.opts.Slowdown)
	case c.opts.Objective == balancer.Cost && c.opts.Bench:
		return c.excludeCostly(batch, curves)
	}
	if best, err = divide.SolveScaled(batch, curves); err != nil || !c.opts.Bench {
		return best, err
	}
	return excludeSlow(batch, curves, best), nil
}

// excludeSlow excludes ranks that make the step longer. It excludes the slowest rank while fewer samples do not make it
// faster and the step is shorter without it.
func excludeSlow(batch divide.Batch, curves []divide.Scaled, best []int) []int {
	batch.Limits = batch.Capacities(len(curves))
	for {
		with, slowest := divide.SlowestScaled(curves, best)
		least := max(batch.Unit, 1)
		if n := best[slowest]; n > least+batch.Total%least && curves[slowest].At(float64(n-least)) < with {
			return best
		}
		limit := batch.Limits[slowest]
		batch.Limits[slowest] = 0
		without, err := divide.SolveScaled(batch, curves)
		if err != nil { // the other ranks cannot hold the batch
			batch.Limits[slowest] = limit
			return best
		}
		if t, _ := divide.SlowestScaled(curves, without); t > with*(1-leastGain) {
			return best
		}
		best = without
	}
}

// excludeCostly excludes ranks that cost more than they are worth. It repeatedly excludes the rank that saves most,
// while the step stays within the slowdown. A rank without samples costs nothing.
func (c *chooser) excludeCostly(batch divide.Batch, curves []divide.Scaled) ([]int, error) {
	best, err := divide.SolveScaled(batch, curves)
	if err != nil {
		return nil, err
	}
	shortest, _ := divide.SlowestScaled(curves, best)
	price := c.price(best)
	limits := batch.Capacities(len(curves))
	batch.Limits = limits
	for cost := shortest * price; ; {
		var next []int
		least, out := cost*(1-leastGain), -1
		for _, r := range c.costliest(best) {
			limit := limits[r]
			limits[r] = 0
			if without, err := divide.SolveScaled(batch, curves); err == nil {
				t, _ := divide.SlowestScaled(curves, without)
				if spent := t * (price - c.opts.Watts[r]); t <= shortest*(1+c.opts.Slowdown) && spent < least {
					next, least, out = without, spent, r
				}
			}
			limits[r] = limit
		}
		if out < 0 {
			return best, nil
		}
		best, cost = next, least
		price -= c.opts.Watts[out]
		limits[out] = 0
	}
}

// costliest returns the ranks that cost most per sample, the most expensive first. The list is short, so that a
// decision stays fast.
func (c *chooser) costliest(shares []int) []int {
	const most = 6
	var ranks []int
	for r, n := range shares {
		if n > 0 {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		return cmp.Compare(c.opts.Watts[b]/float64(shares[b]), c.opts.Watts[a]/float64(shares[a]))
	})
	return ranks[:min(len(ranks), most)]
}
