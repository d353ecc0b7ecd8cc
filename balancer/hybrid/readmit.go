package hybrid

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

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
