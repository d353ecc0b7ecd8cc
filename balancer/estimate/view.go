package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Windows returns the number of windows so far.
func (m *Model) Windows() int { return m.windows }

// Mean returns the expected curves. All times of a rank without measurements are 0. Callers must not change them.
// They are valid until the next Fit.
func (m *Model) Mean() []divide.Scaled { return m.curves.mean }

// Cautious returns the expected curves plus a margin for their errors. Callers must not change them.
// They are valid until the next Fit.
func (m *Model) Cautious() []divide.Scaled { return m.curves.cautious }

// Measured returns copies of the expected curves, nil for a rank that was never measured in this run.
func (m *Model) Measured() []divide.Curve {
	list := make([]divide.Curve, len(m.ranks))
	for r, e := range m.ranks {
		if e.known {
			list[r] = m.curves.mean[r].Whole()
		}
	}
	return list
}

// Noise returns the largest variance of the log of a step's time of one rank.
func (m *Model) Noise() (variance float64) {
	for _, e := range m.ranks {
		variance = max(variance, e.noise)
	}
	return variance
}

// Sigma returns the standard deviation of the expected time of a share, in s; 0 for a rank without a curve.
func (m *Model) Sigma(rank, share int) float64 {
	if m.ranks[rank].shape == nil {
		return 0
	}
	return m.ranks[rank].sigma(float64(share))
}

// Shared returns the standard deviation of the log of the time of a share that ranks of a large type have in common,
// because one curve serves them all. group is the type, from 1 on; 0: the rank has its own curve.
func (m *Model) Shared(rank, share int) (sigma float64, group int) {
	e := m.ranks[rank]
	if e.borrowed == nil {
		return 0, 0
	}
	return math.Sqrt(e.borrowed.ratioVariance(float64(share), e.cells[e.current].samples)), m.types.of[rank] + 1
}

// Known reports whether the rank has a fitted curve.
func (m *Model) Known(rank int) bool { return m.ranks[rank].shape != nil }

// Unsure returns the fraction of a rank's standard error that remains after its curve has moved towards the mean of its
// device type, 0…1.
func (m *Model) Unsure(rank int) float64 { return m.curves.unsure[rank] }

// Shares returns the measured shares through which the curve of a rank passes, in no order. They include the borrowed
// shares of ranks of its type.
func (m *Model) Shares(rank int) []float64 {
	f := m.ranks[rank].shape
	if f == nil {
		return nil
	}
	shares := make([]float64, len(f.cells))
	for i, c := range f.cells {
		shares[i] = c.samples
	}
	return shares
}

// Span returns the smallest and the largest share of [Model.Shares]; 0, 0 if there is none.
func (m *Model) Span(rank int) (least, most float64) {
	f := m.ranks[rank].shape
	if f == nil {
		return 0, 0
	}
	return f.smallest, f.b1
}

// Range returns the smallest and the largest share that was measured on the rank, in this run or in a profile. Shares
// borrowed from ranks of its type count. The curve of an earlier run does not count, because it continues beyond the
// shares of that run. Without any measured share, the result is 0, 0.
func (m *Model) Range(rank int) (least, most float64) {
	e := m.ranks[rank]
	cells, more := e.cells, []cell(nil)
	if e.borrowed != nil {
		more = e.shape.known
	} else {
		cells, _ = m.types.knowledge(m.ranks, rank)
	}
	for _, list := range [][]cell{cells, more} {
		for i := range list {
			c := &list[i]
			if c.steps == 0 && m.options.CurveErrors == nil {
				continue
			}
			if most = max(most, c.samples); least == 0 {
				least = c.samples
			}
			least = min(least, c.samples)
		}
	}
	return least, most
}

// Steps returns the number of steps in which a rank was measured with a share; -1: the share was never measured.
func (m *Model) Steps(rank, share int) int {
	e := m.ranks[rank]
	if at := e.cell(float64(share)); at >= 0 {
		return e.cells[at].steps
	}
	return -1
}

// Valley returns the share up to which the curve of a rank falls; 0: it rises everywhere.
func (m *Model) Valley(rank int) float64 { return m.ranks[rank].shape.parts[0].valley }

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

// Optimistic returns the expected curve of a rank minus sigmas standard deviations, at the shares whose expected time
// is at most upTo, in s. At other shares, it is the expected curve.
func (m *Model) Optimistic(rank int, sigmas, upTo float64) divide.Scaled {
	e := m.ranks[rank]
	lift := stat.Exp(e.lift)
	points := e.optimistic(m.options.Limits[rank], sigmas, upTo/lift)
	return m.curves.bounds[rank].scaled(points, m.curves.shrunk[rank]*lift)
}

// SharesType reports whether another rank has the same device type.
func (m *Model) SharesType(rank int) bool {
	return m.types.lenders != nil && m.types.lenders[rank] != nil
}

// The time at a new share may differ from the curve because the curve is wrong, or because the level of the rank has
// changed. Only a measurement of an earlier share distinguishes the two. After such a difference, AskAgain returns the
// earlier share that is nearest to the share near. It returns 0 if no new share is in doubt, or if near already is an
// earlier share. A second call for the same difference also returns 0, because repeated measurements cost more than
// they gain.
func (m *Model) AskAgain(rank, near int) (share int) {
	e := m.ranks[rank]
	if e.surprise == 0 || e.confirmed {
		return 0
	}
	e.confirmed = true
	nearest := math.Inf(1)
	for _, c := range e.cells {
		if away := math.Abs(math.Log(c.samples / float64(near))); c.age > e.since && away < nearest {
			nearest, share = away, int(c.samples)
		}
	}
	if nearest == 0 {
		return 0
	}
	return share
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
