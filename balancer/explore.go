package balancer

import (
	"math"
	"slices"
)

// A probe is shares that may be better than the best known ones, tried for a window. It ends after two steps where it
// costs more than probeCost ([posterior.early]).
const (
	mostProbe   = 0.25 // of a step: what a probe may cost, as expected curves say: more finds tiles that are far away, and costs more where there are none
	probeRate   = 0.15 // of a step: the same, times the chance that a share fills a tile and the windows that are left, in which a find will pay
	fallRate    = 0.1  // of a step: what a curve that falls beyond the measured shares is expected to bring, before any probe; each probe halves it
	probeLesson = 3    // times what the shares of a probe bring: it teaches curves and tiles beyond these shares. Fewer finds fewer tiles, more costs more where there are none
	endsAfter   = 2    // steps
	leastRatio  = 0.5  // of a share: how far a probe of tiles goes down,
	mostRatio   = 1.6  // and up
	tileTries   = 4    // shares of a rank that a probe of tiles looks at
	nearGap     = 1.15 // ratio by which a larger share must differ from one that was measured to tell anything
	leastGap    = 1.5  // ratio of neighbouring shares that were measured beyond which the curve between them may fall unseen
)

// explore is the next probe, nil where there is nothing to be found out within the budget.
func (h *posterior) explore(batch Batch, from []int, now float64) (next []int, reason string) {
	if next = h.probeBeyond(batch, from, now); next != nil {
		h.beyond++
		return next, "a probe of larger shares: the slowest rank gets no faster with fewer samples"
	}
	if next = h.probeTiles(batch, from, now); next != nil {
		return next, "a probe of shares that may fill tiles"
	}
	if next = h.probeHoped(batch, from, now); next != nil {
		if !h.pays(next, from, now) {
			next = nil
		}
		h.patience = min(int(math.Ceil(patienceGrows*float64(h.patience))), mostPatience)
	}
	return next, "a probe: what ranks could do with other shares is badly known"
}

// left is for how many windows a find will pay: those that are left of the run, or as many as there were if nobody knows.
func (h *posterior) left() float64 {
	if h.opts.Steps > 0 {
		return max(float64(h.opts.Steps-h.seen)/float64(h.opts.Interval)-1, 0) // one is the probe's
	}
	return float64(h.decisions)
}

// pays reports whether what shares of a probe are expected to gain in the windows that are left is worth what the probe
// is expected to cost. In each scenario every rank's curve is wrong by a draw; shares that turn out worse are left again.
func (h *posterior) pays(next, from []int, now float64) bool {
	ranks := make([]prospect, len(h.ranks))
	for r, e := range h.ranks {
		if next[r] > 0 && e.shape != nil {
			ranks[r].best, ranks[r].bestError = h.mean[r].At(float64(next[r])), e.shape.sigma(float64(next[r]))
		}
	}
	random, gain, cost := draws(0), 0.0, 0.0
	for range scenarios {
		slowest := 0.0
		for r := range ranks {
			slowest = max(slowest, ranks[r].best+ranks[r].bestError*random.next())
		}
		gain += max(1-slowest/now-leastGain, 0) / scenarios
		cost += max(slowest/now-1, 0) / scenarios
	}
	return probeLesson*gain*h.left() >= cost
}

// probeBeyond gives ranks that hold up the step with however few samples a larger share, where nothing is known between
// two shares: there the curve may fall.
func (h *posterior) probeBeyond(batch Batch, from []int, now float64) []int {
	batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
	worth := min(mostProbe, fallRate*h.left()*exp(-math.Ln2*float64(h.beyond)))
	if worth < probeCost {
		return nil
	}
	found := false
	for r, e := range h.ranks {
		slow := func(samples int) bool { return h.mean[r].At(float64(samples)) >= now*(1-probeCost) }
		if from[r] == 0 || !slow(from[r]) || !slow(max(h.opts.Unit, 1)) {
			continue
		}
		shares := make([]float64, len(e.cells))
		for i, c := range e.cells {
			shares[i] = c.samples
		}
		slices.Sort(shares)
		next, try, widest := float64(h.most[r]), 0, leastGap
		for i := len(shares) - 1; i >= 0 && shares[i] >= float64(from[r]); i-- {
			middle := math.Floor(math.Sqrt(shares[i] * next))
			for middle > nearGap*shares[i] && h.mean[r].At(middle) > now*(1+worth) { // as far as the budget goes
				middle = math.Floor(middle / nearGap)
			}
			gap := next / shares[i]
			if gap > widest && middle >= nearGap*shares[i] && h.mean[r].At(middle) <= now*(1+worth) && int(middle) <= batch.Limits[r] {
				try, widest = int(middle), gap
			}
			next = shares[i]
		}
		if try > 0 {
			batch.Limits[r], batch.least[r], found = try, try, true
		}
	}
	return h.solved(found, batch, h.mean, from)
}

// probeTiles gives each rank the share that tests most of what is possible and was not tried, as far as the step stays
// within what that is worth.
func (h *posterior) probeTiles(batch Batch, from []int, now float64) []int {
	batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
	candidates, chance := make([][]candidate, len(from)), 0.0
	for r, e := range h.ranks {
		if from[r] > 0 {
			if candidates[r] = e.shape.untested(from[r], batch.Limits[r], max(h.opts.Unit, 1)); len(candidates[r]) > 0 {
				chance = max(chance, candidates[r][0].chance)
			}
		}
	}
	worth := probeRate * h.left()
	if worth*chance < probeCost {
		return nil
	}
	budget := now * (1 + min(mostProbe, worth*chance))
	above, below := -h.opts.Total, h.opts.Total // samples that the ranks could have beyond the batch within the budget, and fewer than the batch
	most := make([]int, len(from))
	least := func(r int) int { return max(batch.least[r], h.opts.Unit, 1) }
	for r, n := range from {
		if n == 0 {
			continue
		}
		for most[r] = n; most[r] < batch.Limits[r] && h.mean[r].At(float64(most[r]+1)) <= budget; {
			most[r]++
		}
		above += most[r]
		below -= least(r)
	}
	found := false
	for r := range from {
		for _, c := range candidates[r] {
			if c.chance*worth >= probeCost && h.mean[r].At(float64(c.share)) <= budget && most[r]-c.share <= above && c.share-least(r) <= below {
				above -= most[r] - c.share
				below -= c.share - least(r)
				batch.Limits[r], batch.least[r], found = c.share, c.share, true
				break
			}
		}
	}
	return h.solved(found, batch, h.mean, from)
}

// probeHoped is the best shares if each rank were as much faster as may well be, as far as that is not expected to cost
// too much.
func (h *posterior) probeHoped(batch Batch, from []int, now float64) []int {
	hoped := slices.Clone(h.mean)
	for r, e := range h.ranks {
		if e.shape == nil {
			continue
		}
		mean, off := e.shape.curves(h.most[r], -probeSigmas)
		for i := range mean {
			if mean[i].Seconds > now*(1+mostProbe) {
				off[i].Seconds = mean[i].Seconds
			}
		}
		hoped[r] = off
	}
	best := h.solved(true, batch, hoped, from)
	if best == nil {
		return nil
	}
	if possible, _ := Slowest(hoped, best); 1-possible/now < probeGain {
		return nil
	}
	return best
}

// solved is the best shares of a probe, nil where there is none.
func (h *posterior) solved(found bool, batch Batch, curves []Curve, from []int) []int {
	if !found {
		return nil
	}
	best, err := Solve(batch, curves)
	if err != nil || slices.Equal(best, from) || !h.opts.valid(best, h.start) {
		return nil
	}
	return best
}
