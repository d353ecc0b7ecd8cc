package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

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

// free returns the distance of a level from the mean of its class as it would be if the rank had no part in this mean.
func (c *Class) free(l *Level) float64 {
	return (l.away - c.mean) * math.Sqrt(c.ranks/max(c.ranks-1, 1))
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

// outlying is the probability, before any measurement, that a rank differs from its type by any factor, for example
// because it is disturbed ([outliers]). The standard deviation of such a difference is mostSpread, log.
const outlying, mostSpread = 0.05, 1.0

// levelSpread is the least standard deviation of the levels of devices of one type, log. Larger: noise makes one of
// many equal ranks appear slow. Smaller: differences below the noise are found later.
const levelSpread = 0.01

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

// robustVariance returns the median and the variance of normal values, by the median absolute deviation.
func robustVariance(values []float64) (middle, variance float64) {
	middle = stat.Median(values)
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v - middle)
	}
	return middle, stat.Square(stat.MADToSigma * stat.Median(off))
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

// densities returns the probability densities of a level at a distance from the mean of its class, up to a constant: of
// a rank apart from its class, and of other ranks. outlying is the fraction of the former.
func densities(away, variance, outlying float64) (apart, together float64) {
	return outlying / mostSpread, (1 - outlying) * stat.Exp(max(-away*away/(2*variance), -600)) / math.Sqrt(variance)
}
