package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// hypothesis assumes that several ranks have a tile: shares that are multiples of a number of samples are faster on
// them.
type hypothesis struct {
	tile        int
	probability float64
	ranks       []bool          // ranks that may have the tile
	curves      []divide.Scaled // with the tile for these ranks, expected curves for the others
	best        []int           // the best shares on these curves
	now         float64         // time of a step with the shares in use, s
	gain        float64         // of a step with the best shares, as a fraction
}

// hypothesisOf returns the hypothesis of a tile whose weight is a number of standard deviations above the expected
// weight. It returns false if no rank may have the tile, or if the shares would not change.
func (p *prober) hypothesisOf(tile int, sigmas float64, batch divide.Batch, inUse []int) (h hypothesis, ok bool) {
	h = hypothesis{tile: tile, ranks: make([]bool, len(inUse)), curves: slices.Clone(p.model.Mean())}
	ranks := 0.0
	for r, n := range inUse {
		if n == 0 {
			continue
		}
		if probability, curve, ok := p.model.Under(tile, r, sigmas); ok {
			h.curves[r], h.ranks[r] = curve, true
			h.probability, ranks = h.probability+probability, ranks+1
		}
	}
	if ranks == 0 {
		return h, false
	}
	h.probability /= ranks
	if h.best = p.fastest(batch, h.curves, inUse); h.best == nil {
		return h, false
	}
	h.now, _ = divide.SlowestScaled(h.curves, inUse)
	h.gain = h.gainOf(h.best)
	return h, true
}

// gainOf returns the gain of shares under the hypothesis, as a fraction of a step.
func (h *hypothesis) gainOf(shares []int) float64 {
	then, _ := divide.SlowestScaled(h.curves, shares)
	return 1 - then/h.now
}

// information returns the fraction of the ranks that a probe tests: those whose share in the probe is their first share
// that fills the tile.
func (p *prober) information(h *hypothesis, probe []int) float64 {
	first, all := 0.0, 0.0
	for r, has := range h.ranks {
		if has {
			all++
			if p.model.Untested(h.tile, r) && estimate.Fills(h.tile, probe[r]) {
				first++
			}
		}
	}
	return first / all
}

// probeTiles returns the shares that test the hypotheses of aligned tiles best: the shares whose expected gain in the
// remaining windows exceeds their expected cost most. Candidates are the best shares under each hypothesis, and shares
// that only fill its tile. The same shares may also fill the tiles of other hypotheses, and then test them too.
func (p *prober) probeTiles(batch divide.Batch, inUse []int, now float64) (best []int) {
	list := p.hypotheses(batch, inUse)
	var candidates [][]int
	add := func(next []int) {
		if !slices.ContainsFunc(candidates, func(c []int) bool { return slices.Equal(c, next) }) {
			candidates = append(candidates, next)
		}
	}
	for i := range list {
		add(list[i].best)
		if i%2 == 0 || list[i-1].tile != list[i].tile { // one of the two weights
			if next := p.cheapest(&list[i], batch, inUse); next != nil {
				add(next)
			}
		}
	}
	most := 0.0
	for _, next := range candidates {
		if !p.isNew(next, inUse) {
			continue
		}
		if value := p.value(next, list, now); value > most {
			best, most = next, value
		}
	}
	return best
}

// hypotheses lists the hypotheses of all aligned tiles. The weight of a tile takes two values with half of the
// probability each, because the value of a tile grows faster than its weight.
func (p *prober) hypotheses(batch divide.Batch, inUse []int) (list []hypothesis) {
	for _, tile := range estimate.AlignedTiles() {
		for _, sigmas := range []float64{-1, 1} {
			if h, ok := p.hypothesisOf(tile, sigmas, batch, inUse); ok {
				h.probability /= 2
				list = append(list, h)
			}
		}
	}
	return list
}

// value returns the expected gain of a probe in the remaining windows minus its expected cost, in windows.
func (p *prober) value(probe []int, list []hypothesis, now float64) float64 {
	value, rest, left := 0.0, 1.0, p.windowsLeft()
	for i := range list {
		h := &list[i]
		gain := h.gainOf(probe)
		value += h.probability * (max(gain-leastGain, h.gain*p.information(h, probe), 0)*left - p.cost(-gain))
		rest -= h.probability
	}
	then, _ := divide.SlowestScaled(p.model.Mean(), probe)
	return value - max(rest, 0)*p.cost(then/now-1)
}

// isNew reports whether a probe gives a rank a share that was measured in fewer steps than a window has.
func (p *prober) isNew(probe, inUse []int) bool {
	for r, n := range probe {
		if n != inUse[r] && p.model.Steps(r, n) < p.opts.Interval {
			return true
		}
	}
	return false
}

// cheapest returns shares near the shares in use with which the ranks of a hypothesis fill its tile; the other ranks
// take the rest. It returns nil if there are no such shares. If the ranks do not have the tile, these shares cost less
// than the best shares of the hypothesis.
func (p *prober) cheapest(h *hypothesis, batch divide.Batch, inUse []int) []int {
	batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
	free, largest := 0, -1 // ranks whose share is not fixed
	period := float64(estimate.Period(h.tile))
	for r, n := range inUse {
		share := int(max(math.Round(float64(n)/period), 1) * period)
		if !h.ranks[r] || !p.model.Untested(h.tile, r) || share > batch.Limits[r] || share < batch.Least[r] {
			free++
			continue
		}
		batch.Limits[r], batch.Least[r] = share, share
		if largest < 0 || n > inUse[largest] {
			largest = r
		}
	}
	if largest < 0 {
		return nil
	}
	if free == 0 {
		batch.Limits[largest], batch.Least[largest] = p.limits[largest], 0
	}
	return p.fastest(batch, p.model.Mean(), inUse)
}
