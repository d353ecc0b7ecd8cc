package hybrid

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// chooser finds the best shares for the objective.
type chooser struct {
	opts   *balancer.Options
	model  *estimate.Model
	start  []int // shares of the first step
	limits []int // largest share of each rank, samples
}

// reach returns the batch with the limits of one decision: from a twelfth of the smallest measured share of a rank to
// four times the largest. One measured share says little about far shares.
func (c *chooser) reach() divide.Batch {
	batch, unit := c.opts.Batch, max(c.opts.Unit, 1)
	batch.Limits, batch.Least = slices.Clone(c.limits), make([]int, c.opts.Ranks)
	capacity := 0
	for r := range batch.Limits {
		if least, most := c.model.Span(r); most > 0 {
			batch.Least[r] = min(int(least/estimate.ReachDown), c.start[r])
			batch.Limits[r] = min(c.limits[r], max(int(estimate.ReachUp*most), 2*unit))
		}
		capacity += batch.Limits[r]
	}
	if capacity < c.opts.Total+c.opts.Ranks*unit {
		batch.Limits = c.opts.Capacities(c.opts.Ranks)
	}
	return batch
}

// fastest returns the shares with the shortest step on curves, for a probe; nil if there are none, or if they are the
// shares in use.
func (c *chooser) fastest(batch divide.Batch, curves []divide.Scaled, inUse []int) []int {
	best, err := divide.SolveScaled(batch, curves)
	if err != nil || slices.Equal(best, inUse) || !c.opts.Accepts(best, c.start) {
		return nil
	}
	return best
}
