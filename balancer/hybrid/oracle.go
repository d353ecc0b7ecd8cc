package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// tail is the number of scenarios below the interval, and above it.
const tail = 3

// unseen is a possibility that the measured shares do not exclude: ranks may be faster with shares that fill tiles, and
// no such share was measured.
type unseen struct {
	chance float64 // probability of this possibility, and of no other of the list
	part   float64 // fraction of the oracle in this case
}

// ofOracle returns the time of a step with the best shares (then, in s) divided by the time with the shares in use,
// both without the noise of steps. It adds exchanged, in s, to both. Each scenario draws an error for the curve of
// every rank. The slowest rank then gives the time of the shares in use. The best shares follow the draw: ranks that
// are slower than expected give samples to the other ranks, to first order along the slopes of the curves. Samples move
// in units ([moves]; without large types, only the decision whether any unit moves depends on the units). The value is
// the median of the scenarios, so that unlikely cases change only the interval.
func ofOracle(ranks []prospect, common groups, list []unseen, then, exchanged, unit float64) balancer.Fraction {
	type sums struct{ slowest, oracle, more float64 } // more: the shortest time of a rank with one more unit
	var of [scenarios]sums
	for i := range of {
		of[i] = sums{0, then, math.Inf(1)}
	}
	give, moving := gives(ranks), newMoves(ranks, common, unit)
	drawn := newSampler(ranks, common, 1)
	var matters func(at int, now, best float64) bool
	slowest, least := 0.0, 0.0 // of all scenarios: the shortest time so far that a further rank must exceed to matter
	if moving.many() {
		matters = func(at int, now, best float64) bool {
			r := drawn.first + at
			return !(now < slowest && best-moving.give[r] < least) || moving.slots[r] > 0
		}
	}
	for drawn.nextBlock(matters) {
		for i := range of {
			nows, offs := drawn.draw(i)
			at := &of[i]
			at.slowest = longest(at.slowest, nows)
			if moving.many() { // the moves give the time of the best shares
				moving.set(i, drawn, offs)
				continue
			}
			for j, now := range nows { // all ranks of the block
				if p := &drawn.block[j]; p.best > 0 {
					at.more = min(at.more, now+p.slope*unit)
					at.oracle += offs[j] / (p.slope * give)
				}
			}
		}
		slowest, least = math.Inf(1), slices.Min(moving.least[:])
		for i := range of {
			slowest = min(slowest, of[i].slowest)
		}
	}
	parts := make([]float64, scenarios)
	for i, at := range of {
		oracle := at.oracle
		if moving.many() {
			oracle = moving.shortest(i, at.slowest, ranks, drawn.shared[i].center)
		} else if at.more >= at.slowest { // no rank can take a unit from the slowest one
			oracle = max(oracle, at.slowest)
		}
		one := (float64(i) + 0.5) / scenarios
		faster := math.Abs(estimate.AlignedWeight + estimate.TileSigma*drawn.random[i].next())
		for _, u := range list {
			if one -= u.chance; one < 0 {
				oracle *= 1 - u.part*faster/(1+faster)
				break
			}
		}
		parts[i] = min(max((oracle+exchanged)/(at.slowest+exchanged), 0), 1)
	}
	slices.Sort(parts)
	return balancer.Fraction{Value: (parts[scenarios/2-1] + parts[scenarios/2]) / 2, Low: parts[tail],
		High: parts[scenarios-1-tail]}
}

// interval returns the 90 % interval of the results of with in all scenarios. with gets two times of a step, in s: with
// the shares in use, and with the best shares.
func interval(ranks []prospect, common groups, with func(now, then float64) float64) (low, high float64) {
	var now, then [scenarios]float64
	drawn := newSampler(ranks, common, 0)
	leastNow, leastThen := 0.0, 0.0 // of all scenarios: the shortest time so far
	for drawn.nextBlock(func(_ int, now, best float64) bool { return !(now < leastNow && best < leastThen) }) {
		for i := range scenarios {
			nows, offs := drawn.draw(i)
			now[i] = longest(now[i], nows)
			for j, c := range drawn.chosen {
				offs[j] += drawn.block[c.at].best
			}
			then[i] = longest(then[i], offs)
		}
		leastNow, leastThen = slices.Min(now[:]), slices.Min(then[:])
	}
	values := make([]float64, scenarios)
	for i := range values {
		values[i] = with(now[i], then[i])
	}
	slices.Sort(values)
	return values[tail], values[scenarios-1-tail]
}
