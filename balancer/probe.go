package balancer

import (
	"math"
	"slices"
)

const (
	firstPatience = 2   // decisions without a change before a probe
	patienceGrows = 1.3 // times with each probe
	mostPatience  = 1024
	settledAfter  = 30    // decisions after which ranks are hoped to be faster, and feared to be slower: earlier the shares are on their way
	hope          = 2.0   // standard deviations of its curve by which a rank may be faster
	probeGain     = 0.005 // of a step: what ranks must possibly be able to do better
	probeCost     = 0.05  // of a step: what a probe may take longer while it lasts
)

// probe is shares that may turn out better although the curves do not say so, or not beyond doubt: the best ones if each rank were as much faster as is
// easily possible. A rank may well take no longer for more samples (small batches leave a GPU's multiprocessors idle; kernels work in whole tiles), and at shares
// near those that were measured its curve is known worse the more it bends. Steps take at most probeCost longer meanwhile, for one interval. nil: nothing is to
// be found out.
func (h *hybrid) probe(now []int, cost float64) []int {
	hoped := slices.Clone(h.curves)
	for r, f := range h.fits {
		if f != nil && h.decisions >= settledAfter {
			_, hoped[r] = f.curves(h.most[r], -hope)
		}
	}
	batch := h.opts.Batch
	batch.Limits = make([]int, len(now))
	for r, n := range now { // a probe goes to twice the share at most, and wakes no benched rank
		if n > 0 {
			batch.Limits[r] = min(h.most[r], max(2*n, n+max(h.opts.Unit, 1)))
		}
	}
	best, err := Solve(batch, hoped)
	if err != nil {
		return nil
	}
	current, _ := Slowest(hoped, now)
	possible, _ := Slowest(hoped, best)
	if 1-possible/current < max(probeGain, cost) {
		return nil
	}
	h.patience = min(int(math.Ceil(patienceGrows*float64(h.patience))), mostPatience)
	expected, _ := Slowest(h.curves, now)
	for part := 1.0; part > 0.05; part /= 2 {
		next := h.towards(now, best, part)
		if t, _ := Slowest(h.curves, next); !slices.Equal(next, now) && t <= expected*(1+probeCost) {
			h.calm = 0
			return next
		}
	}
	return nil
}

// towards goes a part of the way from one split to another, in whole units.
func (h *hybrid) towards(now, best []int, part float64) []int {
	unit := max(h.opts.Unit, 1)
	next, moved := slices.Clone(now), 0
	var givers []int
	for r := range now {
		if d := best[r] - now[r]; d > 0 {
			n := int(float64(d)*part) / unit * unit
			if n == 0 {
				n = min(unit, d)
			}
			next[r] += n
			moved += n
		} else if d < 0 {
			givers = append(givers, r)
		}
	}
	for _, r := range givers {
		n := min(now[r]-best[r], moved)
		next[r] -= n
		moved -= n
	}
	return next
}
