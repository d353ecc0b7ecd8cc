package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// shapeError is the standard deviation of the log of a time between runs, and between devices of one type.
const shapeError = 0.03

// levelSpread is the least standard deviation of the levels of devices of one type, log. Larger: noise makes one of
// many equal ranks appear slow. Smaller: differences below the noise are found later.
const levelSpread = 0.01

const (
	lenders  = 3 // ranks of a type that lend measured shares. Larger values change the shares little
	mostLent = 6 // measured shares of lenders that the curve of a rank uses. Larger values change the shares little
)

// deviceTypes are the groups of ranks of one device type. Ranks of one type run the same kernels, so their curves have
// the same shape at different levels.
type deviceTypes struct {
	groups  [][]int      // ranks of one type, at least two
	lenders [][]int      // by rank: ranks of the same type whose measurements it uses; nil: no two have one type
	curves  []*typeCurve // by group; nil: it has few ranks, or no curve
	of      []int        // by rank: its group; -1: no other rank has its type
	peers   []*peers     // by group; nil: it has few ranks
	spreads [][]Spread   // by group: quantiles of the spread of its levels ([spreadsOf]); nil: few ranks
	classes []Class
	classOf map[[2]int]int // by group and share in use: 1 + the place in classes
}

// typesOf groups the ranks by their types; nil: unknown.
func typesOf(types []string) deviceTypes {
	var groups [][]int
	first := map[string]int{}
	for r, kind := range types {
		at, known := first[kind]
		if !known {
			at = len(groups)
			first[kind], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], r)
	}
	groups = slices.DeleteFunc(groups, func(g []int) bool { return len(g) < 2 })
	if len(groups) == 0 {
		return deviceTypes{}
	}
	of := slices.Repeat([]int{-1}, len(types))
	for i, group := range groups {
		for _, r := range group {
			of[r] = i
		}
	}
	return deviceTypes{groups: groups, lenders: make([][]int, len(types)), of: of,
		curves: make([]*typeCurve, len(groups)), spreads: make([][]Spread, len(groups))}
}

// curveOf returns the curve of the type of a rank; nil: the type has few ranks, or no curve.
func (t *deviceTypes) curveOf(rank int) *typeCurve {
	if t.of == nil || t.of[rank] < 0 {
		return nil
	}
	return t.curves[t.of[rank]]
}

// lend finds the lenders of each rank: the ranks of its type with the most measured shares. Ranks of one type run the
// same kernels, so their curves have the same shape at different levels. The curve of a rank also uses measured shares
// of its lenders. lend shifts their times to the level of the rank, which follows from the rank's time at the share in
// use.
func (t *deviceTypes) lend(ranks []*posterior) {
	for _, group := range t.groups {
		list := make([]int, 0, lenders+2)
		for _, r := range group {
			at := len(list)
			for at > 0 && len(ranks[r].cells) > len(ranks[list[at-1]].cells) {
				at--
			}
			if at <= lenders {
				list = slices.Insert(list, at, r)
				list = list[:min(len(list), lenders+1)]
			}
		}
		for _, r := range group {
			t.lenders[r] = list
		}
	}
}

// knowledge returns the measured shares of a rank and of its lenders, and the covariance of the logs of their times.
func (t *deviceTypes) knowledge(ranks []*posterior, rank int) ([]cell, [][]float64) {
	e := ranks[rank]
	if len(t.lenders) == 0 || t.lenders[rank] == nil || e.current < 0 {
		return e.cells, e.cov
	}
	own := len(e.cells)
	cells, cov := slices.Clone(e.cells), [][]float64(nil)
	type source struct {
		from    *posterior
		at      int
		log     float64 // shift of the lender's times to the level of the rank
		v       float64 // variance of the shift, without the part of the rank
		nearest float64 // distance to the nearest known share, log
	}
	var sources []source
	now := e.cells[e.current]
	logs := make([]float64, own)
	for i, c := range e.cells {
		logs[i] = math.Log(c.samples)
	}
	for _, l := range t.lenders[rank] {
		from := ranks[l]
		if l == rank || from.shape == nil || from.current < 0 {
			continue
		}
		value, variance := from.now(now.samples)
		for i, c := range from.cells {
			if from.known && e.cell(c.samples) < 0 {
				at, nearest := math.Log(c.samples), math.Inf(1)
				for _, l := range logs {
					nearest = min(nearest, math.Abs(at-l))
				}
				sources = append(sources, source{from, i, now.log - value, variance, nearest})
			}
		}
	}
	var lent []source
	for len(lent) < mostLent && len(sources) > 0 { // the share furthest from the known ones is most informative
		best := 0
		for i, s := range sources {
			if s.nearest > sources[best].nearest {
				best = i
			}
		}
		s := sources[best]
		c := s.from.cells[s.at]
		lent = append(lent, s)
		cells = append(cells, cell{samples: c.samples, log: c.log + s.log, age: c.age, steps: c.steps})
		sources = slices.DeleteFunc(sources, func(o source) bool { return o.from.cells[o.at].samples == c.samples })
		for i := range sources {
			away := math.Abs(math.Log(sources[i].from.cells[sources[i].at].samples / c.samples))
			sources[i].nearest = min(sources[i].nearest, away)
		}
	}
	if len(lent) == 0 {
		return e.cells, e.cov
	}
	for i := range own {
		cov = append(cov, slices.Clone(e.cov[i]))
		for range lent {
			cov[i] = append(cov[i], e.cov[i][e.current])
		}
	}
	for i, a := range lent {
		row := slices.Clone(e.cov[e.current])
		for j, b := range lent {
			v := e.cov[e.current][e.current]
			if a.from == b.from {
				v += a.from.cov[a.at][b.at] + a.v
			}
			if i == j {
				v += shapeError * shapeError
			}
			row = append(row, v)
		}
		cov = append(cov, row)
	}
	return cells, cov
}

// now returns the log of the time of a share as of the last window, and its variance. It takes the curve of the last
// decision, and shifts it by the change of the nearest measured share since then.
func (e *posterior) now(samples float64) (value, variance float64) {
	if at := e.cell(samples); at >= 0 {
		return e.cells[at].log, 0
	}
	nearest := e.cells[0]
	for _, c := range e.cells {
		if math.Abs(math.Log(c.samples/samples)) < math.Abs(math.Log(nearest.samples/samples)) {
			nearest = c
		}
	}
	value, variance = e.shape.log(samples)
	was, _ := e.shape.log(nearest.samples)
	return value + nearest.log - was, variance
}

// levelVariance returns the variance of the log of a share's time, as of the last fit. It computes this once for each
// fit, although the share may change a little until the next one.
func (e *posterior) levelVariance(samples float64) float64 {
	if e.level == 0 {
		_, v := e.log(samples)
		e.level = max(v, leastVariance)
	}
	return e.level
}

// shrink moves the curves of ranks of one type towards their mean, because a part of their differences is noise. A rank
// whose level has the variance v moves by the fraction v / (v + tau²) of its distance from the mean. tau is the
// standard deviation of the true levels ([center], [robustCenter]). One of many ranks hardly changes this estimate, so
// for a rank far from the mean, tau is at least its distance / sureSigmas. A rank of a large type moves less the more
// probably it is an outlier ([outliers]).
func (t *deviceTypes) shrink(posteriors []*posterior, c *curves, inUse []int, fitted []Fitted) {
	clear(c.levels)
	t.classes, t.classOf = t.classes[:0], map[[2]int]int{}
	for g, group := range t.groups {
		var ranks []int
		var shares []float64
		for _, r := range group {
			if posteriors[r].known && inUse[r] > 0 {
				ranks, shares = append(ranks, r), append(shares, float64(inUse[r]))
			}
		}
		if len(ranks) < 2 {
			continue
		}
		at := stat.Median(shares) // the share at which the ranks are compared
		levels, variances := make([]float64, len(ranks)), make([]float64, len(ranks))
		for i, r := range ranks {
			levels[i] = math.Log(c.mean[r].At(at))
			variances[i] = posteriors[r].levelVariance(at)
		}
		mean, spread := center(levels, variances)
		if len(group) > largeType && c.levels == nil {
			c.levels = make([]Level, len(posteriors))
		}
		outlying, apart := outlying, []float64(nil)
		if len(ranks) > largeType {
			mean, spread = robustCenter(levels, variances)
			outlying, apart = outliers(levels, variances, mean, spread)
		}
		for i, r := range ranks {
			// Only the error of the time at the share in use is an error of the level.
			v := min(stat.Square(fitted[r].Error/fitted[r].Seconds), variances[i])
			away := mean - levels[i]
			part := v / (variances[i] + max(spread, stat.Square(away/sureSigmas)))
			if apart != nil { // the spread does not depend on a single rank
				part = v / (variances[i] + spread) * (1 - apart[i])
			}
			c.shrunk[r] = stat.Exp(part * away)
			c.unsure[r] = math.Sqrt(1 - part*(1-1/float64(len(ranks))))
			c.scale(r, c.shrunk[r])
			fitted[r].Seconds *= c.shrunk[r]
			if len(group) > largeType {
				c.levels[r] = Level{away: -away, moved: (part - 1) * away, variance: max(v, leastVariance),
					bend: variances[i] - v}
			}
		}
		if len(group) > largeType {
			sharing := slices.DeleteFunc(ranks, func(r int) bool { return posteriors[r].borrowed == nil })
			t.classify(g, c.levels, sharing, inUse)
			t.spreads[g] = t.spreadsOf(c.levels, sharing, outlying)
		}
	}
}

// center returns the mean of levels that have these variances, and the variance tau² of the true levels around it: the
// estimate of DerSimonian and Laird, but at least levelSpread².
func center(levels, variances []float64) (mean, spread float64) {
	var weights, squares float64
	for i, level := range levels {
		w := 1 / variances[i]
		weights, squares, mean = weights+w, squares+w*w, mean+w*level
	}
	mean /= weights
	excess := float64(1 - len(levels)) // of the spread of the levels over that of noise
	for i, level := range levels {
		excess += stat.Square(level-mean) / variances[i]
	}
	spread = max(excess/(weights-squares/weights), stat.Square(levelSpread))
	weights, mean = 0, 0
	for i, level := range levels {
		w := 1 / (variances[i] + spread)
		weights, mean = weights+w, mean+w*level
	}
	return mean / weights, spread
}

// madError times the variance of normal values, divided by the square root of their number, is the standard error of
// their variance by the median absolute deviation.
const madError = 2.33

// robustCenter is [center] for many ranks. They tell the spread of equal devices without levelSpread, and a few slow
// ranks do not make the others appear different. The spread is at least what the number of ranks cannot exclude. If
// equal ranks kept the noise of their levels, the slowest of many would appear slow.
func robustCenter(levels, variances []float64) (mean, spread float64) {
	middle, seen := robustVariance(levels)
	noise := stat.Median(variances)
	unsure := madError / math.Sqrt(float64(len(levels))) * noise
	spread = max(seen-noise, min(unsure, stat.Square(levelSpread)))
	weights := 0.0
	for i, level := range levels {
		w := 1 / (variances[i] + max(spread, stat.Square((level-middle)/sureSigmas)))
		weights, mean = weights+w, mean+w*level
	}
	return mean / weights, spread
}

// outliers returns the fraction of ranks that differ from their type by any factor, and the probability of this for
// each rank. The fraction is learnt from all ranks (expectation maximization; the prior counts as one rank). If
// no rank of many clearly differs, the fraction is small, so the most extreme noise does not make a rank an outlier.
func outliers(levels, variances []float64, mean, spread float64) (fraction float64, each []float64) {
	const rounds = 8
	each, odds := make([]float64, len(levels)), make([]float64, len(levels)) // with equal prior probabilities
	for i, level := range levels {
		apart, together := densities(level-mean, variances[i]+spread, 0.5)
		odds[i] = apart / together
	}
	fraction = outlying
	for range rounds {
		sum, prior := 0.0, fraction/(1-fraction)
		for i, o := range odds {
			each[i] = prior * o / (1 + prior*o)
			sum += each[i]
		}
		fraction = (outlying + sum) / (1 + float64(len(levels)))
	}
	return fraction, each
}
