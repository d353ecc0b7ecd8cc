package hybrid

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

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

// readmitFirst is the number of decisions until an excluded rank gets samples again. It doubles each time. Larger: a
// rank that has become faster is found later.
const readmitFirst = 20

// exclusions counts how long ranks have been excluded.
type exclusions struct {
	active    []bool // ranks that can have samples
	decisions []int  // by rank: decisions without samples; 0: the rank has samples
	readmitAt []int  // by rank: number of such decisions after which it is tried again
}

func newExclusions(active []bool) exclusions {
	return exclusions{active, make([]int, len(active)), slices.Repeat([]int{readmitFirst}, len(active))}
}

// readmit gives an excluded rank samples again from time to time, because a rank without samples has no measurements.
// The intervals become longer with each attempt. readmit changes best.
func (e *exclusions) readmit(c *chooser, shares, best []int) bool {
	for r := range best {
		if best[r] > 0 || !e.active[r] {
			e.decisions[r] = 0
			continue
		}
		if e.decisions[r]++; e.decisions[r] < e.readmitAt[r] || shares[r] > 0 {
			continue
		}
		e.decisions[r], e.readmitAt[r] = 0, 2*e.readmitAt[r]
		batch := c.opts.Batch
		batch.Limits = make([]int, len(best))
		for i := range batch.Limits {
			if best[i] > 0 || i == r {
				batch.Limits[i] = c.limits[i]
			}
		}
		if next, err := divide.SolveScaled(batch, c.model.Mean()); err == nil {
			copy(best, next)
			return true
		}
	}
	return false
}
