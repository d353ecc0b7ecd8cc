package estimate

import (
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// AlignedTiles returns the hypotheses that kernels are faster if the share is a multiple of the tile. The methods below
// take a hypothesis as an index.
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

// Under returns the posterior probability that a rank has a tile, and the rank's curve if it has this tile. The curve
// assumes a weight of the tile that is sigmas standard deviations above the expected weight. ok is false if the
// probability is too small, or if the fit fails numerically.
func (m *Model) Under(tile, rank int, sigmas float64) (probability float64, curve divide.Scaled, ok bool) {
	e := m.ranks[rank]
	f := e.shape
	if f == nil || f.chances[tile] < leastProbed {
		return 0, divide.Scaled{}, false
	}
	points := e.under(tile, sigmas, m.options.Limits[rank])
	if points == nil {
		return 0, divide.Scaled{}, false
	}
	return f.chances[tile], m.curves.bounds[rank].scaled(points, m.curves.shrunk[rank]*stat.Exp(e.lift)), true
}

// Probability returns the posterior probability that a rank has a tile.
func (m *Model) Probability(tile, rank int) float64 { return m.ranks[rank].shape.chances[tile] }

// Untested reports whether a rank has a curve, and none of its measured shares fills the aligned tile.
func (m *Model) Untested(tile, rank int) bool { return m.ranks[rank].shape.misses(tile) }
