package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// commonSure times the variance that chance causes is the least variance within a window that counts as a common change
// of all ranks.
const commonSure = 2.0

// commonMode estimates the change that the times of all ranks have in common from window to window. Such changes occur
// because ranks of one host have the same clock, memory and neighbours. A common change does not change the best
// shares, which depend only on the ratios of the ranks' speeds. If each rank's own curve contained it, the shares would
// change.
type commonMode struct {
	variance float64 // variance of the log of a window's mean that the ranks have in common
	weight   float64 // number of windows in variance
}

func newCommonMode() commonMode { return commonMode{priorNoise * priorNoise, priorWeight} }

// estimate returns the log of the change that the ranks' windows have in common, and its variance. lasts reports that
// the change is larger than the usual changes from window to window, so the speed of all ranks has changed.
func (t *commonMode) estimate(readings []reading) (offset, variance float64, lasts bool) {
	surprises := make([]float64, 0, len(readings))
	for i := range readings {
		if m := &readings[i]; m.samples > 0 && !math.IsNaN(m.surprise) {
			surprises = append(surprises, m.surprise)
		}
	}
	if len(surprises) < 2 {
		return 0, t.variance, false
	}
	center, kept, sum, weights := stat.Median(surprises), 0, 0.0, 0.0
	for i := range readings {
		m := &readings[i]
		// A rank far from the median has changed alone.
		if m.samples > 0 && math.Abs(m.surprise-center) <= sureSigmas*math.Sqrt(m.doubt) {
			kept, sum, weights = kept+1, sum+m.surprise/m.doubt, weights+1/m.doubt
		}
	}
	if kept < 2 || 2*kept <= len(surprises) {
		return 0, t.variance, false
	}
	mean, chance := sum/weights, 1/weights
	before := max(t.variance, mean*mean-stat.Square(likelySigmas)*chance)
	lasts = mean*mean > stat.Square(sureSigmas)*(t.variance+chance)
	t.learn(mean, chance)
	known := before / (before + chance)
	return known * mean, known * chance, lasts
}

// learn updates the variance with the mean surprise of a window. chance is the variance of the mean surprise without a
// common change.
func (t *commonMode) learn(mean, chance float64) {
	tells := stat.Square(priorNoise) / (stat.Square(priorNoise) + chance)
	keep := min(t.weight, memory)
	seen := min(stat.Square(mean), stat.Square(likelySigmas)*(t.variance+chance)) - chance
	t.variance = max((keep*t.variance+tells*seen)/(keep+tells), 0)
	t.weight = keep + tells
}

// withoutCommon removes the common change of all ranks from step to step from the logs of a window. It keeps the mean
// of this change, which [commonMode] estimates. noise is the variance of the log of a step of one rank. With two ranks,
// a common change cannot be estimated.
func withoutCommon(logs [][]float64, noise float64) {
	steps, ranks := 0, make([]int, 0, len(logs))
	for r, l := range logs {
		if len(l) > 0 {
			ranks = append(ranks, r)
			steps = len(l)
		}
	}
	if len(ranks) < 3 || steps < 3 {
		return
	}
	centers := make([]float64, len(ranks))
	for i, r := range ranks {
		if len(logs[r]) != steps { // a rank was not measured in all steps
			return
		}
		centers[i] = stat.Median(logs[r])
	}
	common, off := make([]float64, steps), make([]float64, len(ranks))
	for s := range common {
		for i, r := range ranks {
			off[i] = logs[r][s] - centers[i]
		}
		common[s] = stat.Median(off)
	}
	mean, variance := stat.MeanOf(common).Or(0), 0.0
	for _, c := range common {
		variance += stat.Square(c-mean) / float64(steps-1)
	}
	chance := math.Pi / 2 * noise / float64(len(ranks))
	known := 1 - commonSure*chance/max(variance, math.SmallestNonzeroFloat64)
	if known <= 0 {
		return
	}
	for _, r := range ranks {
		for s, c := range common {
			logs[r][s] -= known * (c - mean)
		}
	}
}
