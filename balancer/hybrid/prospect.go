package hybrid

import (
	"math"

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

// leastSlope bounds flat curves: the smallest relative growth of a rank's time per relative growth of its share.
const leastSlope = 0.001

// prospectOf fills in the expected times of two shares.
func prospectOf(c *divide.Scaled, now, best int) prospect {
	p := prospect{now: c.At(float64(now)), best: c.At(float64(best)), samples: float64(best)}
	if best > 0 {
		low, high := float64(best)/estimate.GridRatio, float64(best)*estimate.GridRatio
		p.slope = max((c.At(high)-c.At(low))/(high-low), leastSlope*p.best/float64(best), math.SmallestNonzeroFloat64)
	}
	return p
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

// gives returns how many samples per second the ranks can take together, to first order.
func gives(ranks []prospect) (give float64) {
	for i := range ranks {
		if p := &ranks[i]; p.best > 0 {
			give += 1 / p.slope
		}
	}
	return give
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
