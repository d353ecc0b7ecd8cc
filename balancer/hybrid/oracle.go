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
	nowError, bestError float64 // s; equal for a rank whose best share has no samples, which draws no error of its own
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

// drawsFrom returns the stream without its first n numbers.
func drawsFrom(n uint64) draws { return draws(n * golden) }

// skip leaves out n numbers.
func (d *draws) skip(n uint64) { *d += draws(n * golden) }

const golden = 0x9e3779b97f4a7c15

func (d *draws) next() float64 { return normals[d.bits()%quantiles] }

// uniform returns a number of at least 0 and below 1.
func (d *draws) uniform() float64 { return float64(d.bits()>>11) / (1 << 53) }

func (d *draws) bits() uint64 {
	*d += golden
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

// nowUnit and bestUnit are the effects on the two times of the error that they have in common, in s. The level of a
// rank of a large type is a factor on both times.
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

// spreads returns a quantile of the spread of the levels of a large type ([estimate.Model.Spread]).
type spreads func(kind, quantile int) estimate.Spread

// groups are the ranks that have errors in common: the ranks of a large type, and the ranks of a class of such a type.
type groups struct {
	types    int // number of large types
	classes  []estimate.Class
	spreadOf spreads
}

func newGroups(ranks []prospect, classes []estimate.Class, of spreads) groups {
	most := 0
	for i := range ranks {
		most = max(most, ranks[i].group)
	}
	for i := range classes {
		most = max(most, classes[i].Type)
	}
	return groups{most, classes, of}
}

// interval returns the 90 % interval of what with makes of the times of a step with the shares in use and with the
// shares best, in s.
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
func prospectOf(c *divide.Scaled, now, best int) prospect {
	p := prospect{now: c.At(float64(now)), best: c.At(float64(best)), samples: float64(best)}
	if best > 0 {
		low, high := float64(best)/estimate.GridRatio, float64(best)*estimate.GridRatio
		p.slope = max((c.At(high)-c.At(low))/(high-low), leastSlope*p.best/float64(best), math.SmallestNonzeroFloat64)
	}
	return p
}
