package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

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
