package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Beliefs in tiles before any measurement.
const (
	tilePrior     = 0.026 // probability of each aligned tile
	roundsPrior   = 0.003 // probability of each tile that rounds up
	AlignedWeight = -0.35 // expected weight of an aligned tile
	TileSigma     = 0.2   // standard deviation of a weight: steps of 10 to 60 % were measured
	roundsWeight  = 0.7   // expected weight of a tile that rounds up
	// leastChance is the least probability of a tile that predictions use. Smaller: improbable tiles would bend smooth
	// curves.
	leastChance = 0.05
)

// tile is one hypothesis of the effect of whole tiles of samples on a rank's times:
//
//	t(b) = base(b) + weight t(b) feature(b)
//
// With an aligned tile, shares that are multiples of the period use a faster kernel: their feature is 1, and the weight
// is below 0. With a tile that rounds up, the first sample of a tile takes the time of the whole tile: the feature is 1
// - b / (b rounded up to the period), and the weight is 0 to 1. With period 0, tiles have no effect.
type tile struct {
	period int
	rounds bool
	prior  float64 // prior probability
}

var tiles = []tile{
	{0, false, 1 - 5*tilePrior - 8*roundsPrior},
	{4, false, tilePrior}, {8, false, tilePrior}, {16, false, tilePrior}, {32, false, tilePrior},
	{64, false, tilePrior},
	{2, true, roundsPrior}, {3, true, roundsPrior}, {4, true, roundsPrior}, {5, true, roundsPrior},
	{6, true, roundsPrior}, {7, true, roundsPrior},
	{8, true, roundsPrior}, {16, true, roundsPrior},
}

func (t *tile) feature(samples float64) float64 {
	p := float64(t.period)
	switch {
	case t.period == 0:
		return 0
	case t.rounds:
		return 1 - samples/(math.Ceil(samples/p)*p)
	case math.Trunc(samples/p)*p == samples: // exact below 2^53 samples; math.Mod is four times as slow
		return 1
	}
	return 0
}

// weight returns the prior mean and standard deviation of the weight, and its upper bound. A tile that rounds up costs
// at most the whole tile; a filled aligned tile costs nothing.
func (t *tile) weight() (mean, sigma, most float64) {
	if t.rounds {
		return roundsWeight, TileSigma, 1
	}
	return AlignedWeight, TileSigma, 0
}

// logBelow returns the log of the probability that a normal variable is below a bound. It uses the logistic function,
// and the asymptote far below the mean.
func logBelow(bound, mean, sigma float64) float64 {
	x := (bound - mean) / sigma
	if x > -1.5 {
		return -math.Log1p(stat.Exp(-1.702 * x))
	}
	return -x*x/2 - math.Log(-x*math.Sqrt(2*math.Pi))
}

// logBelowBound is the log of the prior probability that the weight of an aligned tile, and of one that rounds up, is
// below its bound.
var logBelowBound = func() (logs [2]float64) {
	for i := range logs {
		mean, sigma, most := (&tile{rounds: i == 1}).weight()
		logs[i] = logBelow(most, mean, sigma)
	}
	return logs
}()

// tileBelief is the probability of each tile.
type tileBelief []float64

// tilePriors returns the prior belief in tiles.
func tilePriors() tileBelief {
	b, whole := make(tileBelief, len(tiles)), 0.0
	for _, t := range tiles {
		whole += t.prior
	}
	for i, t := range tiles {
		b[i] = t.prior / whole
	}
	return b
}

// AlignedTiles returns the hypotheses that kernels are faster if the share is a multiple of the tile. The methods of
// [Model] take a hypothesis as an index.
func AlignedTiles() (list []int) {
	for i, t := range tiles {
		if t.period > 0 && !t.rounds {
			list = append(list, i)
		}
	}
	return list
}

// Period returns the number of samples of a tile.
func Period(tile int) int { return tiles[tile].period }

// Fills reports whether a share fills an aligned tile.
func Fills(tile, share int) bool { return tiles[tile].feature(float64(share)) == 1 }

// leastProbed is the least probability of a tile for which a probe (a trial of a share) is considered. Larger: tiles
// that other ranks do not have are never found.
const leastProbed = 0.004
