package balancer

import (
	"math"
	"slices"
)

// A probe is shares that may be better than the best known ones, tried for a window. It ends after two steps where it
// costs more than probeCost ([hybrid.early]).

// explore is the next probe, nil where there is nothing to be found out within the budget.
func (h *hybrid) explore(batch Batch, from []int, now float64) (next []int, reason string) {
	if h.opts.Bench { // a probe gives no samples to an excluded rank
		batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
		for r, n := range from {
			if n == 0 {
				batch.Limits[r], batch.least[r] = 0, 0
			}
		}
	}
	if next = h.probeBeyond(batch, from, now); next != nil {
		h.beyond++
		return next, "a probe (trial of other shares): larger shares for some ranks, because fewer samples do not make the slowest rank faster"
	}
	if next = h.probeTiles(batch, from, now); next != nil {
		return next, "a probe (trial of other shares): these shares may fill the tiles of the kernels, which saves time"
	}
	if next = h.probeHoped(batch, from, now); next != nil {
		if !h.pays(next, from, now) {
			next = nil
		}
		h.patience = int(math.Ceil(patienceGrows * float64(h.patience)))
	}
	return next, "a probe (trial of other shares): the step-time curves are uncertain at these shares"
}

// confirm gives ranks that surprised their curve at a new share one of their earlier shares again, at most probeCost
// slower than now: the surprise is the curve's or the level's, and only a known share tells. nil: no rank did, or the
// best shares tell.
func (h *hybrid) confirm(batch Batch, from, best []int) []int {
	batch.Limits, batch.least = batch.limits(len(from)), slices.Clone(batch.least)
	found := false
	for r, e := range h.ranks {
		if e.surprise == 0 || e.asked || from[r] == 0 {
			continue
		}
		e.asked = true
		nearest, share := math.Inf(1), 0
		for _, c := range e.cells {
			if away := math.Abs(math.Log(c.samples / float64(best[r]))); c.age > e.since && away < nearest {
				nearest, share = away, int(c.samples)
			}
		}
		if share > 0 && nearest > 0 && share <= batch.Limits[r] {
			batch.Limits[r], batch.least[r] = share, share
			found = true
		}
	}
	next := h.solved(found, batch, h.curves, from)
	if next == nil {
		return nil
	}
	now, _ := Slowest(h.curves, from)
	if then, _ := Slowest(h.curves, next); then > now*(1+probeCost) {
		return nil
	}
	return next
}

// windowsLeft is the number of windows in which a better division pays: those that are left of the run, or the number so
// far if the end of the run is unknown.
func (h *hybrid) windowsLeft() float64 {
	if h.left > 0 {
		return max(float64(h.left)/float64(h.opts.Interval)-1, 0) // one is the probe's
	}
	return float64(h.decisions)
}

// pays reports whether the expected gain of a probe's shares in the windows that are left is worth the probe's expected cost. In each scenario every rank's curve is wrong by a draw; shares that turn out worse are left again.
func (h *hybrid) pays(next, from []int, now float64) bool {
	ranks := make([]prospect, len(h.ranks))
	for r, e := range h.ranks {
		if next[r] > 0 && e.shape != nil {
			ranks[r].best, ranks[r].bestError = h.curves[r].At(float64(next[r])), e.shape.sigma(float64(next[r]))
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
	return probeLesson*gain*h.windowsLeft() >= cost
}

// cost is the cost of a probe, in windows, that makes a step longer by a fraction. A probe that costs too much ends early,
// after one more step, in which shares change.
func (h *hybrid) cost(slower float64) float64 {
	if slower > probeCost {
		return min((endsAfter+1)/float64(h.opts.Interval), 1) * slower
	}
	return max(slower, 0)
}

// probeBeyond gives ranks that hold up the step with however few samples a larger share than any that was measured:
// there the curve may fall. The share is the one for which the chance of a fall exceeds the expected cost most.
func (h *hybrid) probeBeyond(batch Batch, from []int, now float64) []int {
	batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
	worth := fallChance * fallGain * h.windowsLeft() * exp(-math.Ln2*float64(h.beyond)) // windows for each octave
	found := false
	var types []string // one rank of a type tells of all
	for r := range h.ranks {
		if h.lenders != nil && h.lenders[r] != nil && slices.Contains(types, h.opts.Types[r]) {
			continue
		}
		try := h.beyondOf(r, batch.Limits[r], from, now, worth)
		if try == 0 {
			continue
		}
		limit, least := batch.Limits[r], batch.least[r]
		batch.Limits[r], batch.least[r] = try, try
		if h.solved(true, batch, h.curves, from) == nil { // the other ranks need these samples
			batch.Limits[r], batch.least[r] = limit, least
		} else {
			found = true
			if h.lenders != nil {
				types = append(types, h.opts.Types[r])
			}
		}
	}
	return h.solved(found, batch, h.curves, from)
}

// beyondOf is the share of a rank that a probe of a fall tries, 0 if there is none: beyond all measured shares, or, where
// a fall was found, between the fastest measured share and the next larger one.
func (h *hybrid) beyondOf(rank, limit int, from []int, now, worth float64) (try int) {
	curve, e := h.curves[rank], h.ranks[rank]
	slow := func(samples int) bool { return curve.At(float64(samples)) >= now*(1-probeCost) }
	if from[rank] == 0 || !slow(from[rank]) || !slow(max(h.opts.Unit, 1)) {
		return 0
	}
	base, upTo, chance := 0.0, float64(limit), worth
	for _, c := range e.shape.cells {
		base = max(base, c.samples)
	}
	if valley := e.shape.parts[0].valley; valley > 0 { // the lowest point lies between the neighbours of the fastest share
		for _, c := range e.shape.cells {
			if c.samples > valley {
				upTo = min(upTo, c.samples/gridRatio)
			}
		}
		base, chance = valley, worth*valleyChance/fallChance
	}
	most := 0.0
	for b := gridRatio * base; math.Ceil(b) <= min(upTo, mostFall*base); b *= gridRatio {
		at := math.Ceil(b)
		if value := chance*math.Log2(at/base) - h.cost(curve.At(at)/now-1); value > most {
			try, most = int(at), value
		}
	}
	return try
}

// lead is one tile that may show on several ranks, the curves that would follow, and the best shares on these.
type lead struct {
	tile   *tile
	chance float64
	asked  []bool  // ranks that may have the tile
	curves []Curve // with the tile for these ranks, expected ones for the others
	next   []int   // the best shares
	now    float64 // s of a step with the shares in use
	gain   float64 // of a step, with the best shares
}

// leadOf is the lead of a tile, its weight a number of standard deviations above the expected one; false if no rank may
// have the tile, or shares stay.
func (h *hybrid) leadOf(tile int, sigmas float64, batch Batch, from []int) (l lead, ok bool) {
	l = lead{tile: &tiles[tile], asked: make([]bool, len(h.ranks)), curves: slices.Clone(h.curves)}
	ranks := 0.0
	for r, e := range h.ranks {
		if from[r] > 0 && e.shape != nil && e.shape.chances[tile] >= leastAdopt {
			if c := e.shape.under(tile, sigmas, h.most[r]); c != nil {
				l.curves[r], l.asked[r] = c, true
				l.chance, ranks = l.chance+e.shape.chances[tile], ranks+1
			}
		}
	}
	if ranks == 0 {
		return l, false
	}
	l.chance /= ranks
	if l.next = h.solved(true, batch, l.curves, from); l.next == nil {
		return l, false
	}
	l.now, _ = Slowest(l.curves, from)
	then, _ := Slowest(l.curves, l.next)
	l.gain = 1 - then/l.now
	return l, true
}

// teaches is the part of the ranks of a lead whose share in a probe is the first one that fills the tile.
func (h *hybrid) teaches(l *lead, probe []int) float64 {
	first, all := 0.0, 0.0
	for r, e := range h.ranks {
		if l.asked[r] {
			all++
			if e.shape.misses(l.tile) && l.tile.feature(float64(probe[r])) == 1 {
				first++
			}
		}
	}
	return first / all
}

// probeTiles is the shares that test leads of aligned tiles best: those whose expected gain in the windows that are left
// exceeds their expected cost most. Candidates are the best shares under each lead, and shares that only fill its tile
// ([hybrid.cheapest]). The weight of a tile takes two values of half the chance each, because small tiles are worth
// nothing and large ones much. The same shares may fill the tiles of other leads; then they teach these.
func (h *hybrid) probeTiles(batch Batch, from []int, now float64) []int {
	var leads []lead
	for i, t := range tiles {
		if t.period == 0 || t.rounds {
			continue
		}
		for _, sigmas := range []float64{-1, 1} {
			if l, ok := h.leadOf(i, sigmas, batch, from); ok {
				l.chance /= 2
				leads = append(leads, l)
			}
		}
	}
	var candidates [][]int
	for i := range leads {
		candidates = append(candidates, leads[i].next)
		if i%2 == 0 || leads[i-1].tile != leads[i].tile { // one of the two weights
			if next := h.cheapest(&leads[i], batch, from); next != nil {
				candidates = append(candidates, next)
			}
		}
	}
	var best []int
	most, left := 0.0, h.windowsLeft()
	for _, next := range candidates {
		value, rest := 0.0, 1.0
		for j := range leads {
			l := &leads[j]
			then, _ := Slowest(l.curves, next)
			gain := 1 - then/l.now
			value += l.chance * (max(gain-leastGain, l.gain*h.teaches(l, next), 0)*left - h.cost(-gain))
			rest -= l.chance
		}
		then, _ := Slowest(h.curves, next)
		value -= max(rest, 0) * h.cost(then/now-1)
		if value > most {
			best, most = next, value
		}
	}
	return best
}

// cheapest is shares near those in use with which the ranks of a lead that miss its tile fill it; the other ranks take
// the rest. nil where there are none. If no tile shows, these shares cost less than the best ones of the lead.
func (h *hybrid) cheapest(l *lead, batch Batch, from []int) []int {
	batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
	free, largest := 0, -1 // ranks whose share is not fixed
	for r, e := range h.ranks {
		period := float64(l.tile.period)
		share := int(max(math.Round(float64(from[r])/period), 1) * period)
		if !l.asked[r] || !e.shape.misses(l.tile) || share > batch.Limits[r] || share < batch.least[r] {
			free++
			continue
		}
		batch.Limits[r], batch.least[r] = share, share
		if largest < 0 || from[r] > from[largest] {
			largest = r
		}
	}
	if largest < 0 {
		return nil
	}
	if free == 0 {
		batch.Limits[largest], batch.least[largest] = h.most[largest], 0
	}
	return h.solved(true, batch, h.curves, from)
}

// probeHoped is the best shares if each rank were faster by probeSigmas, except for shares whose expected cost is above mostProbe.
func (h *hybrid) probeHoped(batch Batch, from []int, now float64) []int {
	hoped := slices.Clone(h.curves)
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
func (h *hybrid) solved(found bool, batch Batch, curves []Curve, from []int) []int {
	if !found {
		return nil
	}
	best, err := Solve(batch, curves)
	if err != nil || slices.Equal(best, from) || !h.opts.valid(best, h.start) {
		return nil
	}
	return best
}
