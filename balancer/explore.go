package balancer

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// A probe tries shares that may be better than the best known shares, for one window. It ends after two steps if it
// costs more than probeCost ([hybrid.early]).

// explore returns the shares of the next probe, or nil if no probe pays.
func (h *hybrid) explore(batch divide.Batch, from []int, now float64) (next []int, reason string) {
	if h.opts.Bench { // a probe gives no samples to an excluded rank
		batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
		for r, n := range from {
			if n == 0 {
				batch.Limits[r], batch.Least[r] = 0, 0
			}
		}
	}
	if next = h.probeFalls(batch, from, now); next != nil {
		h.falls++
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

// confirm measures earlier shares of ranks again whose time at a new share was far from their curve. The difference
// comes from the shape of the curve or from the level, and only a known share distinguishes the two. The shares make
// the step at most probeCost slower. The result is nil if no rank needs this, or if the best shares already distinguish
// the two; otherwise rank is one that gets an earlier share.
func (h *hybrid) confirm(batch divide.Batch, from, best []int) (next []int, rank int) {
	batch.Limits, batch.Least = batch.Capacities(len(from)), slices.Clone(batch.Least)
	rank = -1
	for r, e := range h.ranks {
		if e.surprise == 0 || e.asked || from[r] == 0 {
			continue
		}
		e.asked = true // also if the probe would cost too much: asking again costs more than it finds
		nearest, share := math.Inf(1), 0
		for _, c := range e.cells {
			if away := math.Abs(math.Log(c.samples / float64(best[r]))); c.age > e.since && away < nearest {
				nearest, share = away, int(c.samples)
			}
		}
		if share > 0 && nearest > 0 && share <= batch.Limits[r] {
			batch.Limits[r], batch.Least[r] = share, share
			rank = r
		}
	}
	if rank < 0 {
		return nil, -1
	}
	if next = h.solved(batch, h.curves, from); next == nil {
		return nil, -1
	}
	now, _ := divide.Slowest(h.curves, from)
	if then, _ := divide.Slowest(h.curves, next); then > now*(1+probeCost) {
		return nil, -1
	}
	return next, rank
}

// windowsLeft returns the number of windows in which better shares pay: the remaining windows of the run, or the number
// of windows so far if the end of the run is unknown.
func (h *hybrid) windowsLeft() float64 {
	if h.left > 0 {
		return max(float64(h.left)/float64(h.opts.Interval)-1, 0) // one window is the probe itself
	}
	return float64(h.decisions)
}

// pays reports whether the expected gain of the probe's shares in the remaining windows exceeds the expected cost of
// the probe. Each scenario draws an error for the curve of every rank. After the probe, the policy leaves shares that
// turn out to be worse.
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
	return gain*h.windowsLeft() >= cost
}

// cost returns the cost, in windows, of a probe that makes a step longer by the fraction slower. A probe that costs too
// much ends early, after one more step, in which shares change.
func (h *hybrid) cost(slower float64) float64 {
	if slower > probeCost {
		return min((fewSteps+1)/float64(h.opts.Interval), 1) * slower
	}
	return max(slower, 0)
}

// probeFalls gives larger shares to ranks that are the slowest even with few samples, because their curves may fall
// there. It selects the share for which the expected gain of a fall exceeds the expected cost most.
func (h *hybrid) probeFalls(batch divide.Batch, from []int, now float64) []int {
	batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
	needed, least := 0, make([]int, len(from)) // samples that all ranks need at least
	for r, n := range from {
		if n > 0 {
			least[r] = max(h.opts.Unit, batch.Least[r], 1)
			needed += least[r]
		}
	}
	var best []int
	var types []string // one rank represents all ranks of its type
	for r := range h.ranks {
		if h.lenders != nil && h.lenders[r] != nil && slices.Contains(types, h.opts.Types[r]) {
			continue
		}
		try := h.fallOf(r, min(batch.Limits[r], batch.Total-needed+least[r]), from, now)
		if try == 0 {
			continue
		}
		limit, few := batch.Limits[r], batch.Least[r]
		batch.Limits[r], batch.Least[r] = try, try
		// The other ranks may need these samples. With units, the rank may get a share that is known.
		if next := h.solved(batch, h.curves, from); next == nil || h.ranks[r].cell(float64(next[r])) >= 0 {
			batch.Limits[r], batch.Least[r] = limit, few
		} else {
			best = next
			if h.lenders != nil {
				types = append(types, h.opts.Types[r])
			}
		}
	}
	return best
}

// fallOf returns the share of a rank that a probe of a fall tries, or 0. A curve falls to a valley and rises beyond it, so
// the share is between the largest one that is nearly the fastest and the next larger measured one.
func (h *hybrid) fallOf(rank, limit int, from []int, now float64) (try int) {
	curve, e := h.curves[rank], h.ranks[rank]
	slow := func(samples int) bool { return curve.At(float64(samples)) >= now*(1-probeCost) }
	if from[rank] == 0 || !slow(from[rank]) || !slow(max(h.opts.Unit, 1)) {
		return 0
	}
	chance, base := fallChance, e.shape.parts[0].valley // base: the largest share that is nearly the fastest
	if base > 0 {
		chance = valleyChance
	} else {
		fastest := math.Inf(1)
		for _, c := range e.shape.cells {
			fastest = min(fastest, curve.At(c.samples))
		}
		for _, c := range e.shape.cells {
			if curve.At(c.samples) <= fastest*(1+nearlyFastest) {
				base = max(base, c.samples)
			}
		}
	}
	next := math.Inf(1)
	for _, c := range e.shape.cells {
		if c.samples > base {
			next = min(next, c.samples)
		}
	}
	chance *= stat.Exp(-fallFades * float64(h.falls))
	most, unit := 0.0, float64(max(h.opts.Unit, 1))
	for b := gridRatio * base; b > 0; b *= gridRatio {
		at := math.Ceil(b/unit) * unit
		if at > min(float64(limit), next) {
			break
		}
		octaves := min(math.Log2(at/base), math.Log2(next/at), mostOctaves)
		if value := chance*octaves*fallGain*h.windowsLeft() - h.cost(curve.At(at)/now-1); value > most {
			try, most = int(at), value
		}
	}
	return try
}

// lead is a hypothesis: a tile that several ranks may have, the curves with this tile, and the best shares on these
// curves.
type lead struct {
	tile   *tile
	chance float64
	asked  []bool         // ranks that may have the tile
	curves []divide.Curve // with the tile for these ranks, expected curves for the others
	next   []int          // the best shares
	now    float64        // s of a step with the shares in use
	gain   float64        // of a step, with the best shares
}

// leadOf returns the lead of a tile whose weight is a number of standard deviations above the expected weight. It
// returns false if no rank may have the tile, or if the shares would not change.
func (h *hybrid) leadOf(tile int, sigmas float64, batch divide.Batch, from []int) (l lead, ok bool) {
	l = lead{tile: &tiles[tile], asked: make([]bool, len(h.ranks)), curves: slices.Clone(h.curves)}
	ranks := 0.0
	for r, e := range h.ranks {
		if from[r] > 0 && e.shape != nil && e.shape.chances[tile] >= leastAdopt {
			if c := e.shape.under(tile, sigmas, h.most[r]); c != nil {
				l.curves[r], l.asked[r] = h.fastest[r].bound(times(c, h.shrunk[r])), true
				l.chance, ranks = l.chance+e.shape.chances[tile], ranks+1
			}
		}
	}
	if ranks == 0 {
		return l, false
	}
	l.chance /= ranks
	if l.next = h.solved(batch, l.curves, from); l.next == nil {
		return l, false
	}
	l.now, _ = divide.Slowest(l.curves, from)
	then, _ := divide.Slowest(l.curves, l.next)
	l.gain = 1 - then/l.now
	return l, true
}

// teaches returns the fraction of the ranks of a lead whose share in a probe is their first share that fills the tile.
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

// probeTiles returns the shares that test leads of aligned tiles best: the shares whose expected gain in the remaining
// windows exceeds their expected cost most. Candidates are the best shares under each lead, and shares that only fill
// its tile ([hybrid.cheapest]). The weight of a tile takes two values with half of the chance each, because the value
// of a tile grows faster than its weight. The same shares may also fill the tiles of other leads, and then test these
// leads too.
func (h *hybrid) probeTiles(batch divide.Batch, from []int, now float64) []int {
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
		if !h.isNew(next, from) {
			continue
		}
		value, rest := 0.0, 1.0
		for j := range leads {
			l := &leads[j]
			then, _ := divide.Slowest(l.curves, next)
			gain := 1 - then/l.now
			value += l.chance * (max(gain-leastGain, l.gain*h.teaches(l, next), 0)*left - h.cost(-gain))
			rest -= l.chance
		}
		then, _ := divide.Slowest(h.curves, next)
		value -= max(rest, 0) * h.cost(then/now-1)
		if value > most {
			best, most = next, value
		}
	}
	return best
}

// isNew reports whether a probe of shares gives a rank a share that was measured in fewer steps than a window has.
func (h *hybrid) isNew(next, from []int) bool {
	for r, e := range h.ranks {
		if at := e.cell(float64(next[r])); next[r] != from[r] && (at < 0 || e.cells[at].steps < h.opts.Interval) {
			return true
		}
	}
	return false
}

// cheapest returns shares near the shares in use with which the ranks of a lead fill its tile; the other ranks take the
// rest. It returns nil if there are no such shares. If the ranks do not have the tile, these shares cost less than the
// best shares of the lead.
func (h *hybrid) cheapest(l *lead, batch divide.Batch, from []int) []int {
	batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
	free, largest := 0, -1 // ranks whose share is not fixed
	for r, e := range h.ranks {
		period := float64(l.tile.period)
		share := int(max(math.Round(float64(from[r])/period), 1) * period)
		if !l.asked[r] || !e.shape.misses(l.tile) || share > batch.Limits[r] || share < batch.Least[r] {
			free++
			continue
		}
		batch.Limits[r], batch.Least[r] = share, share
		if largest < 0 || from[r] > from[largest] {
			largest = r
		}
	}
	if largest < 0 {
		return nil
	}
	if free == 0 {
		batch.Limits[largest], batch.Least[largest] = h.most[largest], 0
	}
	return h.solved(batch, h.curves, from)
}

// probeHoped returns the best shares under the assumption that each rank is faster by probeSigmas. It returns nil if
// their expected cost is above mostProbe.
func (h *hybrid) probeHoped(batch divide.Batch, from []int, now float64) []int {
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
		hoped[r] = h.fastest[r].bound(times(off, h.shrunk[r]))
	}
	best := h.solved(batch, hoped, from)
	if best == nil {
		return nil
	}
	if possible, _ := divide.Slowest(hoped, best); 1-possible/now < leastGain {
		return nil
	}
	return best
}

// solved returns the best shares of a probe, or nil.
func (h *hybrid) solved(batch divide.Batch, curves []divide.Curve, from []int) []int {
	best, err := divide.Solve(batch, curves)
	if err != nil || slices.Equal(best, from) || !h.opts.valid(best, h.start) {
		return nil
	}
	return best
}
