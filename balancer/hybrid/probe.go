package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

const (
	// patienceGrows is the factor on the number of windows without a change before the next speculative probe, after
	// each such probe. Smaller: probes more often without a result.
	patienceGrows = 1.3
	// probeSigmas is the number of standard deviations by which a speculative probe assumes ranks to be faster.
	probeSigmas = 1.5
	// mostProbe is the largest expected cost of a speculative probe, as a fraction of a step.
	mostProbe = 0.25
)

// probe returns the shares of the next probe with the reason, or nil if no probe pays. The one or two steps of the
// first window say little about the ranks, so no probe follows them.
func (p *prober) probe(reach divide.Batch, inUse []int) (next []int, reason string) {
	if p.quiet++; p.opts.Objective != balancer.Time || p.quiet < p.patience || p.model.Windows() <= 1 {
		return nil, ""
	}
	now, _ := divide.SlowestScaled(p.model.Cautious(), inUse)
	if next, reason = p.mostValuable(p.withoutExcluded(reach, inUse), inUse, now); next != nil {
		p.quiet, p.running = 0, true
	}
	return next, reason
}

// withoutExcluded returns the batch without the ranks that have no samples: no probe gives them samples.
func (p *prober) withoutExcluded(batch divide.Batch, inUse []int) divide.Batch {
	if !p.opts.Bench {
		return batch
	}
	batch.Limits, batch.Least = slices.Clone(batch.Limits), slices.Clone(batch.Least)
	for r, n := range inUse {
		if n == 0 {
			batch.Limits[r], batch.Least[r] = 0, 0
		}
	}
	return batch
}

// mostValuable tries the kinds of probes in order. now is the time of a step with the shares in use, s.
func (p *prober) mostValuable(batch divide.Batch, inUse []int, now float64) (next []int, reason string) {
	if next = p.probeFalls(batch, inUse, now); next != nil {
		p.fallProbes++
		return next, "a probe (trial of other shares): larger shares for some ranks, because fewer samples do not make the slowest rank faster"
	}
	if next = p.probeTiles(batch, inUse, now); next != nil {
		return next, "a probe (trial of other shares): these shares may fill the tiles of the kernels, which saves time"
	}
	if next = p.optimistic(batch, inUse, now); next != nil {
		if !p.pays(next, now) {
			next = nil
		}
		p.patience = int(math.Ceil(patienceGrows * float64(p.patience)))
	}
	return next, "a probe (trial of other shares): the step-time curves are uncertain at these shares"
}

// optimistic returns the best shares under the assumption that each rank is faster by probeSigmas. It returns nil if
// their expected cost is above mostProbe.
func (p *prober) optimistic(batch divide.Batch, inUse []int, now float64) []int {
	curves := slices.Clone(p.model.Mean())
	for r := range curves {
		if p.model.Known(r) {
			curves[r] = p.model.Optimistic(r, probeSigmas, now*(1+mostProbe))
		}
	}
	best := p.fastest(batch, curves, inUse)
	if best == nil {
		return nil
	}
	if possible, _ := divide.SlowestScaled(curves, best); 1-possible/now < leastGain {
		return nil
	}
	return best
}

// pays reports whether the expected gain of the probe's shares in the remaining windows exceeds the expected cost of
// the probe. Each scenario draws an error for the curve of every rank. After the probe, the policy leaves shares that
// turn out to be worse.
func (p *prober) pays(next []int, now float64) bool {
	ranks := make([]prospect, len(next))
	curves := p.model.Mean()
	for r := range curves {
		if next[r] > 0 && p.model.Known(r) {
			ranks[r].best, ranks[r].bestError = curves[r].At(float64(next[r])), p.model.Sigma(r, next[r])
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
	return gain*p.windowsLeft() >= cost
}

// confirm measures earlier shares of ranks again whose time at a new share was far from their curve, because only an
// earlier share shows whether the level of the rank has changed. The shares make the step at most probeCost slower. The
// result is nil if no rank needs this, or if the best shares already distinguish the two; otherwise rank is one that
// gets an earlier share.
func (p *prober) confirm(batch divide.Batch, inUse, best []int) (next []int, rank int) {
	batch.Limits, batch.Least = batch.Capacities(len(inUse)), slices.Clone(batch.Least)
	curves := p.model.Mean()
	rank = -1
	longest := 0.0 // time of these ranks, s
	for r, n := range inUse {
		if n == 0 {
			continue
		}
		if share := p.model.AskAgain(r, best[r]); share > 0 && share <= batch.Limits[r] {
			batch.Limits[r], batch.Least[r] = share, share
			rank, longest = r, max(longest, curves[r].At(float64(share)))
		}
	}
	if rank < 0 {
		return nil, -1
	}
	now, _ := divide.SlowestScaled(curves, inUse)
	// The ranks must take exactly their earlier shares, so the step takes at least this time, independent of the shares
	// of the other ranks. With larger units, a rank may get less than a share that is no multiple of the unit.
	if batch.Unit <= 1 && longest > now*(1+probeCost) {
		return nil, -1
	}
	if next = p.fastest(batch, curves, inUse); next == nil {
		return nil, -1
	}
	if then, _ := divide.SlowestScaled(curves, next); then > now*(1+probeCost) {
		return nil, -1
	}
	p.running = true
	return next, rank
}
