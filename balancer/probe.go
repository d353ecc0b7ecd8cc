package balancer

import "slices"

const (
	firstPatience = 2 // decisions without a change before a probe; doubled with each
	mostPatience  = 1024
	settledAfter  = 30    // decisions after which a rank's only share is worth another try: earlier the shares are on their way
	probeGain     = 0.005 // of a step: what ranks must possibly be able to do better
	probeCost     = 0.05  // of a step: what a probe may take longer while it lasts
)

// probe is shares that may turn out better although the curves do not say so, or not beyond doubt. A rank that in a long time was measured at one share only may
// well take no longer for more (small batches leave a GPU's multiprocessors idle; kernels work in whole tiles), so its curve is taken as flat
// there. Ranks with more measurements keep their curves: a gain that these promise, and that was refused because it may be noise, is tried too. Steps
// take at most probeCost longer meanwhile, for one interval. nil: nothing is to be found out.
func (h *hybrid) probe(now []int, cost float64) []int {
	hoped := make([]Curve, len(now))
	for r, c := range h.curves {
		hoped[r] = c
		if b := float64(now[r]); b > 0 && len(h.ranks[r].cells) == 1 && h.decisions >= settledAfter {
			hoped[r] = c.flat(b)
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
	h.patience = min(2*h.patience, mostPatience)
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

// flat is the curve if more than b samples took no longer than b, up to twice as many.
func (c Curve) flat(b float64) Curve {
	out, height := Curve{}, c.At(b)
	for _, p := range c {
		if p.Samples < b {
			out = append(out, p)
		}
	}
	out = append(out, Point{b, height}, Point{2 * b, height}, Point{2*b + 1, max(c.At(2*b+1), height)})
	for _, p := range c {
		if p.Samples > 2*b+1 {
			out = append(out, p)
		}
	}
	return out
}
