package estimate

import "github.com/hetero-train/hetero-train/balancer/divide"

// AlignedTiles returns the hypotheses that shares which are multiples of a number of samples are faster, as indices for
// the methods below.
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

// leastProbed is the least probability of a tile that a probe assumes. Larger: tiles that other ranks do not have are
// never found.
const leastProbed = 0.004

// Under returns the posterior probability that a rank has a tile, and its curve in this case, if the weight of the tile
// is a number of standard deviations above the expected weight. The curve is nil if the probability is too small, or if
// the fit fails numerically.
func (m *Model) Under(tile, rank int, sigmas float64) (probability float64, curve divide.Curve) {
	f := m.ranks[rank].shape
	if f == nil || f.chances[tile] < leastProbed {
		return 0, nil
	}
	if curve = f.under(tile, sigmas, m.options.Limits[rank]); curve == nil {
		return 0, nil
	}
	return f.chances[tile], m.curves.bounds[rank].bound(times(curve, m.curves.shrunk[rank]))
}

// Probability returns the posterior probability that a rank has a tile.
func (m *Model) Probability(tile, rank int) float64 { return m.ranks[rank].shape.chances[tile] }

// Untested reports whether a rank has a curve, and no measured share of it fills an aligned tile.
func (m *Model) Untested(tile, rank int) bool { return m.ranks[rank].shape.misses(&tiles[tile]) }
