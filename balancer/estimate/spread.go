package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Ranks of one type with one share in use form a class. The levels of its ranks differ by an unknown standard deviation
// tau. A tau below the noise of the levels cannot be measured, so [deviceTypes.shrink] assumes one value.
// The error of this value is common to all ranks of the type: if the devices are equal, all differences of their levels
// are noise. Intervals therefore need the posterior of tau. Levels of two classes also differ by the error of the curve
// between their shares, which is no difference of the devices.
//
// The variances of the filter are not exact either: a rank leaves a share after times that noise made long, so its
// times at the share before and at the next one are not independent. Such an error is common to the ranks of a type,
// too, and changes the levels as tau does. The variances are therefore known up to a factor.

// outlying is the probability, before any measurement, that a rank differs from its type by any factor, for example
// because it is disturbed ([outliers]). The standard deviation of such a difference is mostSpread, log.
const outlying, mostSpread = 0.05, 1.0

const (
	// leastSpread and mostSpread limit tau, log. Before any measurement, each order of magnitude between them is
	// equally probable. Smaller leastSpread: more weight of equal devices.
	leastSpread = 1e-4
	spreadSteps = 21 // values of tau whose probability is computed
	// spreadRanks is the number of ranks from which the posterior of tau is computed. Larger: intervals of equal
	// devices are narrower, and a decision takes longer.
	spreadRanks = 256
	// Spreads is the number of quantiles of the posterior of tau.
	Spreads = 64
)

// varianceErrors are the equally probable factors on the variances of the filter.
var varianceErrors = [...]float64{1, 1.5, 2.25}

// Spread describes how the levels of the ranks of a large type differ, in truth and by noise.
type Spread struct {
	Levels float64 // tau: standard deviation of the true levels, log
	noise  float64 // factor on the variance of a level
}

// Level is the level of a rank of a large type, relative to the mean of its type, as a log.
type Level struct {
	Class    int     // from 1 on; 0: the rank has its own curve
	Apart    float64 // probability that the rank differs from its class by any factor
	away     float64 // as measured
	moved    float64 // of the curve of the rank, which has moved towards the mean of the type
	variance float64 // of away
	bend     float64 // variance of the log of the ratio of the class's share to that at which the type is compared
}

// Class has the ranks of one large type with one share in use.
type Class struct {
	Type     int     // from 1 on
	ranks    float64 // number
	mean     float64 // level relative to the mean of the type, log
	variance float64 // of the level of one rank
	// bend is the variance of the difference from the type because of the error of the curve between their shares;
	// infinite: the ranks of the class differ from their type.
	bend float64
}

// Shape returns the fraction of shapeError by which the shapes of the curves differ. Devices whose levels are equal run
// in the same way, so their shapes are equal, too.
func (s Spread) Shape() float64 { return min(s.Levels/shapeError, 1) }

// Center returns the mean and the standard deviation of the mean of the true levels of a class, given the spread of
// its type.
func (c *Class) Center(s Spread) (mean, sigma float64) {
	variance := (s.Levels*s.Levels + s.noise*c.variance) / c.ranks
	if math.IsInf(c.bend, 1) {
		return c.mean, math.Sqrt(variance)
	}
	known := c.bend / (c.bend + variance)
	return known * c.mean, math.Sqrt(known * variance)
}

// Posterior describes the log of the rank's level relative to its curve, given the spread of its type: the part of its
// distance from the mean of its class that is no noise, and the standard deviation of the log. A rank that is apart
// from its class keeps its level. [Level.Mean] is the mean of the log.
func (l *Level) Posterior(s Spread, apart bool) (part, sigma float64) {
	noise, part := s.noise*l.variance, 1.0
	if !apart {
		part = s.Levels * s.Levels / (s.Levels*s.Levels + noise)
	}
	return part, math.Sqrt(part * noise)
}

// Mean returns the mean of the log of the rank's level relative to its curve, given the mean of the levels of its class
// and the part of [Level.Posterior].
func (l *Level) Mean(part, center float64) float64 { return center + part*(l.away-center) - l.moved }

// classify forms the classes of the ranks of a group.
func (t *deviceTypes) classify(group int, levels []Level, ranks, shares []int) {
	first := len(t.classes)
	for _, r := range ranks {
		l, key := &levels[r], [2]int{group, shares[r]}
		if l.Class = t.classOf[key]; l.Class == 0 {
			t.classes = append(t.classes, Class{Type: group + 1})
			l.Class = len(t.classes)
			t.classOf[key] = l.Class
		}
		c, w := &t.classes[l.Class-1], 1/l.variance
		c.ranks, c.mean, c.variance, c.bend = c.ranks+1, c.mean+w*l.away, c.variance+w, c.bend+l.bend
	}
	for i := range t.classes[first:] {
		c := &t.classes[first+i]
		c.mean, c.variance, c.bend = c.mean/c.variance, c.ranks/c.variance, c.bend/c.ranks+windowNoise*windowNoise
		// Shares follow levels, so a class can consist of the ranks with the most extreme noise.
		chosen := math.Sqrt(2 * math.Log(float64(len(ranks))/c.ranks) * c.variance)
		if math.Abs(c.mean) > chosen+sureSigmas*math.Sqrt(c.bend+c.variance/c.ranks) {
			c.bend = math.Inf(1)
		}
	}
}

// Classes returns all classes. Callers must not change them.
func (m *Model) Classes() []Class { return m.types.classes }

// ClassWith returns the class of a rank's type with a share in use, from 1 on, if its ranks differ from those of the
// rank's class only by the error of the curve between the two shares; 0: there is none.
func (m *Model) ClassWith(rank, share int) int {
	if m.types.of == nil || m.curves.levels == nil || m.curves.levels[rank].Class == 0 {
		return 0
	}
	other := m.types.classOf[[2]int{m.types.of[rank], share}]
	if other == 0 {
		return 0
	}
	a, b := &m.types.classes[m.curves.levels[rank].Class-1], &m.types.classes[other-1]
	if math.IsInf(a.bend+b.bend, 1) || stat.Square(a.mean-b.mean) > stat.Square(likelySigmas)*(a.bend+b.bend+
		a.variance/a.ranks+b.variance/b.ranks) {
		return 0
	}
	return other
}

// Level returns the level of a rank relative to its type.
func (m *Model) Level(rank int) Level {
	if m.ranks[rank].borrowed == nil || m.curves.levels == nil {
		return Level{}
	}
	return m.curves.levels[rank]
}

// Spread returns a quantile of the spread of a large type. The types are counted from 1 on, and the quantiles from 0 to
// Spreads - 1. The spread of a type with few ranks is not estimated, and 0.
func (m *Model) Spread(kind, quantile int) Spread {
	if quantiles := m.types.spreads[kind-1]; quantiles != nil {
		return quantiles[quantile]
	}
	return Spread{}
}

// spreadsOf returns the quantiles of the posterior of tau from the levels of the ranks of one type. It sets
// Level.Apart.
func (t *deviceTypes) spreadsOf(levels []Level, ranks []int, outlying float64) (quantiles []Spread) {
	var logs [spreadSteps][len(varianceErrors)]float64
	var spreads [spreadSteps]Spread
	n, best := min(len(ranks), spreadRanks), math.Inf(-1)
	chosen := make([]*Level, 0, n)
	for i := range n {
		if l := &levels[ranks[stat.Sample(i, len(ranks))]]; t.classes[l.Class-1].ranks >= 2 {
			chosen = append(chosen, l)
		}
	}
	away := make([]float64, len(chosen))
	for i, l := range chosen {
		away[i] = t.classes[l.Class-1].free(l)
	}
	for k := range spreads {
		spreads[k].Levels = leastSpread * stat.Exp(float64(k)/(spreadSteps-1)*math.Log(mostSpread/leastSpread))
		for j, factor := range varianceErrors {
			product := 1.0 // of a few densities, which saves logarithms
			for i, l := range chosen {
				apart, together := densities(away[i], factor*l.variance+spreads[k].Levels*spreads[k].Levels, outlying)
				if product *= apart + together; i%8 == 7 || i == len(chosen)-1 {
					logs[k][j], product = logs[k][j]+math.Log(product), 1
				}
			}
			best = max(best, logs[k][j])
		}
	}
	sum, parts := 0.0, [spreadSteps]float64{}
	for k := range spreads {
		for j, factor := range varianceErrors {
			chance := stat.Exp(max(logs[k][j]-best, -600))
			parts[k], spreads[k].noise = parts[k]+chance, spreads[k].noise+chance*factor
		}
		spreads[k].noise /= parts[k]
		sum += parts[k]
	}
	mean := Spread{}
	for k, part := range parts {
		mean.Levels, mean.noise = mean.Levels+part/sum*spreads[k].Levels, mean.noise+part/sum*spreads[k].noise
	}
	for _, r := range ranks {
		l := &levels[r]
		class, variance := &t.classes[l.Class-1], mean.noise*l.variance+mean.Levels*mean.Levels
		away := class.free(l)
		if class.ranks < 2 { // it has only the other classes to compare with
			away, variance = l.away, variance+class.bend
		}
		if math.IsInf(variance, 1) {
			l.Apart = 1
			continue
		}
		apart, together := densities(away, variance, outlying)
		l.Apart = apart / (apart + together)
	}
	quantiles = make([]Spread, Spreads)
	k, below := 0, parts[0]
	for q := range quantiles {
		for k < spreadSteps-1 && below < (float64(q)+0.5)/Spreads*sum {
			k++
			below += parts[k]
		}
		quantiles[q] = spreads[k]
	}
	return quantiles
}

// free returns the distance of a level from the mean of its class as it would be if the rank had no part in this mean.
func (c *Class) free(l *Level) float64 {
	return (l.away - c.mean) * math.Sqrt(c.ranks/max(c.ranks-1, 1))
}

// densities returns the probability densities of a level at a distance from the mean of its class, up to a constant: of
// a rank apart from its class, and of other ranks. outlying is the fraction of the former.
func densities(away, variance, outlying float64) (apart, together float64) {
	return outlying / mostSpread, (1 - outlying) * stat.Exp(max(-away*away/(2*variance), -600)) / math.Sqrt(variance)
}
