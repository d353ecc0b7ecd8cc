package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Falls: a rank may take longer for few samples than for more, because libraries choose other kernels for them.
const (
	// probability of a fall within the octave beyond the fastest shares, if the curve has not fallen so far
	fallChance   = 0.1
	valleyChance = 0.5 // likewise, of a further fall, if the curve falls up to its fastest share
	// fallFades is the log of the factor by which each probe of a fall reduces both. Smaller: probes longer without a
	// result.
	fallFades = 0.17
	// fallGain is the gain of a fall, as a fraction of a step. Larger: finds more falls, and costs more if there are
	// none.
	fallGain = 0.3
	// mostOctaves is the largest distance from measured shares that counts, in octaves. Larger: probes larger shares.
	mostOctaves = 1.3
	// nearlyFastest: a probe starts from the largest share whose time exceeds the shortest time by at most this
	// fraction.
	nearlyFastest = 0.15
)

// probeFalls gives larger shares to ranks that are the slowest even with few samples, because their curves may fall
// there. It selects the share for which the expected gain of a fall exceeds the expected cost most.
func (p *prober) probeFalls(batch divide.Batch, inUse []int, now float64) []int {
	batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
	needed, least := 0, make([]int, len(inUse)) // samples that all ranks need at least
	for r, n := range inUse {
		if n > 0 {
			least[r] = max(p.opts.Unit, batch.Least[r], 1)
			needed += least[r]
		}
	}
	var best []int
	var types []string // one rank represents all ranks of its type
	for r := range inUse {
		if p.model.SharesType(r) && slices.Contains(types, p.opts.Types[r]) {
			continue
		}
		try := p.fallOf(r, min(batch.Limits[r], batch.Total-needed+least[r]), inUse, now)
		if try == 0 {
			continue
		}
		limit, few := batch.Limits[r], batch.Least[r]
		batch.Limits[r], batch.Least[r] = try, try
		// The other ranks may need these samples. With units, the rank may get a share that is known.
		if next := p.fastest(batch, p.model.Mean(), inUse); next == nil || p.model.Steps(r, next[r]) >= 0 {
			batch.Limits[r], batch.Least[r] = limit, few
		} else {
			best = next
			if p.opts.Types != nil {
				types = append(types, p.opts.Types[r])
			}
		}
	}
	return best
}

// fallOf returns the share of a rank that a probe of a fall tries, or 0. A curve falls to a valley and rises beyond it,
// so the share is between the largest one that is nearly the fastest and the next larger measured one.
func (p *prober) fallOf(rank, limit int, inUse []int, now float64) (try int) {
	curve := &p.model.Mean()[rank]
	slow := func(samples int) bool { return curve.At(float64(samples)) >= now*(1-probeCost) }
	if inUse[rank] == 0 || !slow(inUse[rank]) || !slow(max(p.opts.Unit, 1)) {
		return 0
	}
	chance, base := p.fallBase(rank)
	next := math.Inf(1)
	for _, share := range p.model.Shares(rank) {
		if share > base {
			next = min(next, share)
		}
	}
	chance *= stat.Exp(-fallFades * float64(p.fallProbes))
	most, unit := 0.0, float64(max(p.opts.Unit, 1))
	for b := estimate.GridRatio * base; b > 0; b *= estimate.GridRatio {
		at := math.Ceil(b/unit) * unit
		if at > min(float64(limit), next) {
			break
		}
		octaves := min(math.Log2(at/base), math.Log2(next/at), mostOctaves)
		if value := chance*octaves*fallGain*p.windowsLeft() - p.cost(curve.At(at)/now-1); value > most {
			try, most = int(at), value
		}
	}
	return try
}

// fallBase returns the largest share of a rank that is nearly the fastest, and the probability of a fall beyond it.
func (p *prober) fallBase(rank int) (chance, base float64) {
	if valley := p.model.Valley(rank); valley > 0 {
		return valleyChance, valley
	}
	curve, shares, fastest := &p.model.Mean()[rank], p.model.Shares(rank), math.Inf(1)
	for _, share := range shares {
		fastest = min(fastest, curve.At(share))
	}
	for _, share := range shares {
		if curve.At(share) <= fastest*(1+nearlyFastest) {
			base = max(base, share)
		}
	}
	return fallChance, base
}
