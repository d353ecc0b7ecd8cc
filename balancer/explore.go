package balancer

import (
	"math"
	"slices"
)

// A probe is shares that may be better than the best known ones, tried for a window. It ends after two steps where it
// costs more than probeCost ([posterior.early]).
const (
	mostProbe   = 0.25 // of a step: most expected cost of a probe of shares that are badly known
	fallChance  = 0.1  // that a curve falls within the next octave beyond the measured shares, before any probe; each probe halves it
	fallGain    = 0.3  // of a step: gain of such a fall. A larger one finds more falls, and costs more where there are none
	mostFall    = 2.5  // times the largest measured share: how far a probe of a fall goes
	probeLesson = 3    // value of a probe, in gains of its shares: it teaches curves and tiles beyond these shares. Fewer finds fewer tiles, more costs more where there are none
	endsAfter   = 2    // steps
	endedPart   = 0.3  // of a window: duration of a probe that ends early, with the step in which shares change
	nearGap     = 1.15 // ratio of the shares beyond the measured ones that are compared
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
	return next, "a probe: the curves know little of other shares"
}

// left is the number of windows in which a better division pays: those that are left of the run, or the number so far if
// the end of the run is unknown.
func (h *posterior) left() float64 {
	if h.opts.Steps > 0 {
		return max(float64(h.opts.Steps-h.seen)/float64(h.opts.Interval)-1, 0) // one is the probe's
	}
	return float64(h.decisions)
}

// pays reports whether the expected gain of a probe's shares in the windows that are left is worth the probe's expected cost. In each scenario every rank's curve is wrong by a draw; shares that turn out worse are left again.
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

// cost is the cost of a probe, in windows, that makes a step longer by a fraction. A probe that costs too much ends early.
func cost(slower float64) float64 {
	if slower > probeCost {
		return endedPart * slower
	}
	return max(slower, 0)
}

// probeBeyond gives ranks that hold up the step with however few samples a larger share than any that was measured:
// there the curve may fall. The share is the one for which the chance of a fall exceeds the expected cost most.
func (h *posterior) probeBeyond(batch Batch, from []int, now float64) []int {
	batch.Limits, batch.least = slices.Clone(batch.Limits), slices.Clone(batch.least)
	worth := fallChance * fallGain * h.left() * exp(-math.Ln2*float64(h.beyond)) // windows for each octave
	found := false
	for r := range h.ranks {
		try := h.beyondOf(r, batch.Limits[r], from, now, worth)
		if try == 0 {
			continue
		}
		limit, least := batch.Limits[r], batch.least[r]
		batch.Limits[r], batch.least[r] = try, try
		if h.solved(true, batch, h.mean, from) == nil { // the other ranks need these samples
			batch.Limits[r], batch.least[r] = limit, least
		} else {
			found = true
		}
	}
	return h.solved(found, batch, h.mean, from)
}

// beyondOf is the share of a rank that a probe of a fall tries, 0 if there is none: where the rank does not hold up the
// step, or where a fall was found and a larger share is known to be slower.
func (h *posterior) beyondOf(rank, limit int, from []int, now, worth float64) (try int) {
	curve, e := h.mean[rank], h.ranks[rank]
	slow := func(samples int) bool { return curve.At(float64(samples)) >= now*(1-probeCost) }
	if from[rank] == 0 || !slow(from[rank]) || !slow(max(h.opts.Unit, 1)) {
		return 0
	}
	largest := 0.0
	for _, c := range e.cells {
		largest = max(largest, c.samples)
	}
	if valley := e.shape.parts[0].valley; valley > 0 && valley < largest {
		return 0
	}
	most := 0.0
	for b := nearGap * largest; math.Ceil(b) <= min(float64(limit), mostFall*largest); b *= nearGap {
		at := math.Ceil(b)
		if value := worth*math.Log2(at/largest) - cost(curve.At(at)/now-1); value > most {
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
func (h *posterior) leadOf(tile int, sigmas float64, batch Batch, from []int) (l lead, ok bool) {
	l = lead{tile: &tiles[tile], asked: make([]bool, len(h.ranks)), curves: slices.Clone(h.mean)}
	ranks := 0.0
	for r, e := range h.ranks {
		if from[r] > 0 && e.shape != nil && e.shape.chances[tile] >= leastAdopt {
			if c := e.shape.under(tile, sigmas, h.most[r], e.cells, e.cov); c != nil {
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
func (h *posterior) teaches(l *lead, probe []int) float64 {
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

// probeTiles is the best shares under one lead of an aligned tile: the one whose expected gain in the windows that are
// left exceeds its expected cost most. The weight of a tile takes two values of half the chance each, because small
// tiles are worth nothing and large ones much. The same shares may fill the tiles of other leads; then they teach these.
func (h *posterior) probeTiles(batch Batch, from []int, now float64) []int {
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
	var best []int
	most, left := 0.0, h.left()
	for i := range leads {
		next, value, rest := leads[i].next, 0.0, 1.0
		for j := range leads {
			l := &leads[j]
			then, _ := Slowest(l.curves, next)
			gain := 1 - then/l.now
			value += l.chance * (max(gain-leastGain, l.gain*h.teaches(l, next), 0)*left - cost(-gain))
			rest -= l.chance
		}
		then, _ := Slowest(h.mean, next)
		value -= max(rest, 0) * cost(then/now-1)
		if value > most {
			best, most = next, value
		}
	}
	return best
}

// probeHoped is the best shares if each rank were faster by probeSigmas, except for shares whose expected cost is above mostProbe.
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
