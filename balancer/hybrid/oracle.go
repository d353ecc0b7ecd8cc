package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// prospect is the input of [ofOracle] and of [interval] for one rank: two shares, the expected time of each, and its
// standard error, in s. A rank without samples takes no time.
type prospect struct {
	now, best           float64 // expected time of the share in use and of the best share, s
	nowError, bestError float64 // s
	slope               float64 // of the expected time at the best share, s per sample
	samples             float64 // the best share
	room                float64 // samples that fit into the rank's memory beyond the best share
	next                float64 // time of one more unit than the best share, s
	// nextClass is the class of this larger share, and 0 if there is none, or if the best share is not in use.
	nextClass int
	// Ranks of a large type share the error of their curve: shared is this part of bestError, in s, and group is the
	// type, from 1 on. 0: the rank has its own curve.
	shared float64
	group  int
	level  estimate.Level // of a rank of a large type: the common error of both times, instead of nowError
}

const (
	scenarios  = 64    // draws from the posterior of all ranks
	tail       = 3     // number of scenarios below the interval, and above it
	quantiles  = 1024  // number of quantiles of the normal distribution from which draws select
	leastSlope = 0.001 // of a rank's time, per relative growth of its share: bounds flat curves
)

// normals are quantiles of the normal distribution.
var normals = func() (z [quantiles]float64) {
	for i := range z {
		z[i] = math.Sqrt2 * math.Erfinv((2*float64(i)+1)/quantiles-1)
	}
	return z
}()

// draws is a stream of normal numbers, the same in every run (splitmix64).
type draws uint64

func (d *draws) next() float64 { return normals[d.bits()%quantiles] }

// uniform returns a number of at least 0 and below 1.
func (d *draws) uniform() float64 { return float64(d.bits()>>11) / (1 << 53) }

func (d *draws) bits() uint64 {
	*d += 0x9e3779b97f4a7c15
	x := uint64(*d)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

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
	parts := make([]float64, scenarios)
	random := draws(0)
	give := gives(ranks)
	moving := newMoves(ranks, common, unit)
	for i := range parts {
		common.draw(i, &random)
		moving.draw(ranks, common)
		slowest, oracle, more := 0.0, then, math.Inf(1) // more: the shortest time of a rank with one more unit
		for r := range ranks {
			p := &ranks[r]
			level := p.drawLevel(common, &random)
			now := p.now + p.nowUnit()*level
			slowest = max(slowest, now)
			if p.best == 0 {
				continue
			}
			more = min(more, now+p.slope*unit)
			off := p.off(level, common, &random)
			oracle += off / (p.slope * give)
			moving.set(r, p.best+off)
		}
		if moving.many() {
			oracle = moving.shortest(slowest)
		} else if more >= slowest { // no rank can take a unit from the slowest one
			oracle = max(oracle, slowest)
		}
		one, faster := (float64(i)+0.5)/scenarios, math.Abs(estimate.AlignedWeight+estimate.TileSigma*random.next())
		for _, u := range list {
			if one -= u.chance; one < 0 {
				oracle *= 1 - u.part*faster/(1+faster)
				break
			}
		}
		parts[i] = min(max((oracle+exchanged)/(slowest+exchanged), 0), 1)
	}
	slices.Sort(parts)
	return balancer.Fraction{Value: (parts[scenarios/2-1] + parts[scenarios/2]) / 2, Low: parts[tail],
		High: parts[scenarios-1-tail]}
}

// drawLevel draws the error of the curve that both shares of a rank have in common: a multiple of nowUnit and of
// bestUnit.
func (p *prospect) drawLevel(common groups, random *draws) float64 {
	z := random.next()
	if p.level.Class == 0 {
		return z
	}
	const rarely = 0.001 // saves most draws
	apart := p.level.Apart > 1-rarely || p.level.Apart > rarely && random.uniform() < p.level.Apart
	kind := common.classes[p.level.Class-1].Type
	mean, sigma := p.level.Posterior(common.spread[kind], common.center[p.level.Class], apart)
	return mean + sigma*z
}

// nowUnit and bestUnit are the effects of drawLevel on the two times, in s. The level of a rank of a large type is a
// factor on both times.
func (p *prospect) nowUnit() float64 {
	if p.level.Class == 0 {
		return p.nowError
	}
	return p.now
}

func (p *prospect) bestUnit() float64 {
	if p.level.Class == 0 {
		return min(p.nowError, p.bestError)
	}
	return p.best
}

// off draws the error of the time of the best share, in s. level is the error that both shares have in common
// ([prospect.drawLevel]), and common are the errors that ranks of one type have in common.
func (p *prospect) off(level float64, common groups, random *draws) float64 {
	off := p.bestUnit() * level
	if p.bestError > p.nowError {
		own := p.bestError*p.bestError - p.nowError*p.nowError
		if p.group > 0 {
			shared := min(p.shared*p.shared, own)
			off += math.Sqrt(shared) * common.curve[p.group]
			own -= shared
		}
		off += math.Sqrt(own) * random.next()
	}
	return off
}

// spreads returns a quantile of the spread of the levels of a large type ([estimate.Model.Spread]).
type spreads func(kind, quantile int) estimate.Spread

// groups are what ranks have in common in a scenario.
type groups struct {
	classes  []estimate.Class
	spreadOf spreads
	curve    []float64         // by large type: error of the curve, in standard deviations
	spread   []estimate.Spread // by large type: of the levels of its ranks
	center   []float64         // by class, from 1 on: mean of the levels of its ranks relative to the type, log
}

func newGroups(ranks []prospect, classes []estimate.Class, of spreads) groups {
	most := 0
	for i := range ranks {
		most = max(most, ranks[i].group)
	}
	for i := range classes {
		most = max(most, classes[i].Type)
	}
	return groups{classes, of, make([]float64, most+1), make([]estimate.Spread, most+1),
		make([]float64, len(classes)+1)}
}

// draw draws the errors of a scenario. Each scenario has another quantile of the spread, which is the same for all
// types: the causes of different levels, such as cooling, concern all types.
func (g *groups) draw(scenario int, random *draws) {
	const mix = 27 // odd, so that each quantile occurs once; other events follow the number of the scenario
	for i := range g.curve[1:] {
		g.curve[i+1] = random.next()
		g.spread[i+1] = g.spreadOf(i+1, mix*scenario%estimate.Spreads)
	}
	for i := range g.classes {
		c := &g.classes[i]
		mean, sigma := c.Center(g.spread[c.Type])
		g.center[i+1] = mean + sigma*random.next()
	}
}

// interval returns the 90 % interval of what with makes of the times of a step with the shares in use and with the
// shares best, in s.
func interval(ranks []prospect, common groups, with func(now, then float64) float64) (low, high float64) {
	values := make([]float64, scenarios)
	random := draws(0)
	for i := range values {
		common.draw(i, &random)
		now, then := 0.0, 0.0
		for r := range ranks {
			p := &ranks[r]
			level := p.drawLevel(common, &random)
			now = max(now, p.now+p.nowUnit()*level)
			then = max(then, p.best+p.off(level, common, &random))
		}
		values[i] = with(now, then)
	}
	slices.Sort(values)
	return values[tail], values[scenarios-1-tail]
}

// gives returns how many samples per second the ranks can take together, to first order.
func gives(ranks []prospect) (give float64) {
	for i := range ranks {
		if p := &ranks[i]; p.best > 0 {
			give += 1 / p.slope
		}
	}
	return give
}

// prospectOf fills in the expected times of two shares.
func prospectOf(c divide.Curve, now, best int) prospect {
	p := prospect{now: c.At(float64(now)), best: c.At(float64(best)), samples: float64(best)}
	if best > 0 {
		low, high := float64(best)/estimate.GridRatio, float64(best)*estimate.GridRatio
		p.slope = max((c.At(high)-c.At(low))/(high-low), leastSlope*p.best/float64(best), math.SmallestNonzeroFloat64)
	}
	return p
}
