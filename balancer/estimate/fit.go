package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// settledAfter is the number of windows after which the choice of shares uses a margin for the errors of the curves.
// Before that, shares still change much. Smaller: too few shares are tried.
const settledAfter = 30

// caution times sqrt(2 ln ranks) is this margin, in standard deviations. Larger: too few shares are tried.
const caution = 0.27

// Fit computes all curves around the shares in use. If cautious is set, the curves of [Model.Cautious] have a margin
// after the first windows. missing is an active rank that was not measured, or -1.
func (m *Model) Fit(shares []int, cautious bool) (fitted []Fitted, missing int) {
	fitted = slices.Repeat([]Fitted{{math.NaN(), math.NaN()}}, len(m.ranks))
	missing = m.fit(shares, cautious, fitted)
	m.windows++
	return fitted, missing
}

func (m *Model) fit(shares []int, cautious bool, fitted []Fitted) (missing int) {
	sigmas := 0.0
	if cautious && m.windows >= settledAfter {
		sigmas = caution * math.Sqrt(2*math.Log(float64(len(m.ranks))))
	}
	tiles := pooledTiles(m.ranks)
	m.types.lend(m.ranks)
	m.poolCurves(shares, &tiles)
	for r, e := range m.ranks {
		if e.current < 0 && shares[r] > 0 || len(e.cells) == 0 && m.options.Active[r] {
			return r
		}
		if len(e.cells) > 0 && !m.fitRank(r, shares[r], &tiles, sigmas, fitted) {
			return r
		}
	}
	m.types.shrink(m.ranks, &m.curves, shares, fitted)
	m.bends = pooledBends(m.ranks)
	m.curves.bound()
	return -1
}

// fitRank computes the curve of a rank with measurements around its share in use. It returns false if all fits fail
// numerically.
func (m *Model) fitRank(rank, share int, tiles *tilePool, sigmas float64, fitted []Fitted) bool {
	e, b0 := m.ranks[rank], float64(share)
	if b0 == 0 {
		b0 = e.cells[max(e.current, 0)].samples
	}
	if !m.borrow(rank, sigmas) && !m.follows(rank, b0) {
		cells, cov := m.types.knowledge(m.ranks, rank)
		if e.draw(cells, cov, &m.bends, tiles.without(e.shape), b0); e.shape == nil {
			return false
		}
		m.curves.draw(rank, e, m.options.Limits[rank], sigmas)
	}
	if e.trend != 0 { // as of the middle of the next window
		m.curves.scale(rank, stat.Exp(e.trend*(boundarySteps+float64(m.options.Interval)/2)))
	}
	if share > 0 {
		fitted[rank] = Fitted{m.curves.mean[rank].At(b0), e.sigma(b0)}
	}
	return true
}

// drawnEvery is the number of windows in which each curve is fitted once, with more than manyRanks ranks. Smaller: a
// decision takes longer, and the shares change little.
const drawnEvery = 8

// follows scales the curve of a rank by the change of its time at the share in use. It reports whether the curve needs
// no new fit in this window. With many ranks, each curve is fitted again only every few windows, unless its measured
// shares change.
func (m *Model) follows(rank int, share float64) bool {
	e := m.ranks[rank]
	f := e.shape
	if len(m.ranks) <= manyRanks || e.borrowed != nil || f == nil ||
		(m.windows+rank)%drawnEvery == 0 || m.windows == settledAfter || f.b0 != share || e.trend != 0 ||
		len(f.known) < len(e.cells) ||
		!slices.EqualFunc(e.cells, f.known[:len(e.cells)], func(a, b cell) bool { return a.samples == b.samples }) {
		return false
	}
	moved := stat.Exp(e.cells[e.current].log - e.drawn)
	if !(moved > 0.9 && moved < 1.1) {
		return false
	}
	m.curves.settle(rank)
	m.curves.scale(rank, moved/m.curves.shrunk[rank]) // shrink follows; its input must be curves that it has not moved
	e.drawn, m.curves.shrunk[rank], m.curves.unsure[rank] = e.cells[e.current].log, 1, 1
	return true
}
