package estimate

import "slices"

// priorRanks is the weight of the prior beliefs in bends and tiles, in ranks. Smaller: a tile that all ranks have is
// found sooner. Larger: tiles of single ranks are found.
const priorRanks = 8.0

// tilePool adds up what the ranks believe about tiles. The ranks share these beliefs, because all run the same kernels.
type tilePool struct {
	sum   tileBelief
	ranks float64
}

// pooledTiles sums the beliefs of the ranks. The priors count as much as priorRanks additional ranks.
func pooledTiles(ranks []*posterior) tilePool {
	v := tilePool{make(tileBelief, len(tiles)), priorRanks}
	for i, chance := range tilePriors() {
		v.sum[i] = priorRanks * chance
	}
	for _, e := range ranks {
		if e.shape.distinguishesTiles() {
			v.ranks++
			for i, c := range e.shape.chances {
				v.sum[i] += c
			}
		}
	}
	return v
}

// without returns the belief in the tiles of a rank without its own data.
func (v tilePool) without(own *shape) tileBelief { return v.withoutAll(own, 1) }

// withoutAll returns the belief in the tiles of a type without the data of its ranks that share a curve.
func (v tilePool) withoutAll(own *shape, sharing float64) tileBelief {
	b := slices.Clone(v.sum)
	ranks := v.ranks
	if own.distinguishesTiles() {
		ranks -= sharing
		for i, c := range own.chances {
			b[i] -= sharing * c
		}
	}
	for i := range b {
		b[i] = max(b[i]/ranks, 0)
	}
	return b
}

// pooledBends returns the mean of the beliefs of the ranks and of the prior.
func pooledBends(posteriors []*posterior) belief {
	b, ranks := priorBends, priorRanks
	for i := range b {
		b[i] *= ranks
	}
	for _, e := range posteriors {
		if e.shape != nil && len(e.cells) >= 3 { // fewer cells do not distinguish bends
			ranks++
			for i, c := range e.shape.bends {
				b[i] += c
			}
		}
	}
	for i := range b {
		b[i] /= ranks
	}
	return b
}
