package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Options describe the ranks before the first window.
type Options struct {
	Limits      []int          // samples: the largest share of each rank, at which its curve ends
	Active      []bool         // ranks that can have samples
	Interval    int            // steps of a window, except for the first ones
	Types       []string       // device types of the ranks; nil: unknown
	Curves      []divide.Curve // of earlier runs; nil, or an empty curve of a rank: none
	CurveErrors []float64      // standard errors of the times of Curves, as fractions; nil: none
}

// Model is the posterior of the step times of all ranks. After each window of steps with constant shares, Learn takes
// the measured times, and Fit then computes the curves.
type Model struct {
	options Options
	ranks   []*posterior
	common  commonMode
	noise   openingNoise
	types   deviceTypes
	bends   belief // in the bends of all curves
	curves
	scratch []float64 // of levelOn

	windows   int // so far
	disturbed int // remaining windows of the disturbance; 0: there is none
}

// Window contains the measured times of a window: consecutive steps with constant shares.
type Window struct {
	Shares  []int
	Seconds [][]float64 // by rank and step; no steps: the rank was not measured
	Opening bool        // one of the first windows, which have fewer steps than an interval
	// Blind states that nothing was known before the first step, whose time also contains the start of the program.
	Blind bool
}

// New returns the model before the first window.
func New(o Options) *Model {
	m := &Model{options: o, ranks: make([]*posterior, len(o.Limits)), common: newCommonMode(), types: typesOf(o.Types),
		bends: priorBends, curves: newCurves(len(o.Limits))}
	for r, limit := range o.Limits {
		sigma := 0.0
		if o.CurveErrors != nil {
			sigma = o.CurveErrors[r]
		}
		m.ranks[r] = newPosterior(m.prior(r), sigma, limit)
	}
	m.setPeers()
	return m
}

// prior returns the curve of an earlier run, nil if there is none.
func (m *Model) prior(rank int) divide.Curve {
	if m.options.Curves == nil || !m.options.Active[rank] {
		return nil
	}
	return m.options.Curves[rank]
}

// Start returns the curves before the first window. known is true if each active rank has a curve of an earlier run.
func (m *Model) Start() (start []divide.Curve, known bool) {
	known = m.options.Curves != nil
	for r, active := range m.options.Active {
		start = append(start, timeless)
		if prior := m.prior(r); active {
			start[r] = m.ranks[r].shape.between(prior, m.options.Limits[r])
			known = known && len(prior) > 0
		}
	}
	return start, known
}

// Learn updates the level of each rank from the times of one window. A change that all ranks have in common is not
// attributed to a rank. The levels follow it slowly, or immediately if it is larger than usual changes.
func (m *Model) Learn(w *Window) {
	if w.Opening {
		m.noise.pool(m.ranks, w.Seconds, &m.types)
	}
	m.types.poolNoise(m.ranks)
	readings := m.read(w)
	m.endDisturbances(readings)
	common, variance, lasts := m.common.estimate(readings)
	level := follow * common
	if lasts {
		level = common
	}
	jumped := lasts && math.Abs(common) > leastJump
	for r, e := range m.ranks {
		moved, calm := e.learn(&readings[r], common, variance)
		jumped = moved || jumped
		if lasts && readings[r].samples > 0 {
			e.jumps.add(common, 1)
		}
		e.move(level, 0)
		if e.away++; calm && !lasts && m.disturbed == 0 && m.windows > 0 {
			e.keep()
		}
	}
	if m.disturbed = max(m.disturbed-1, 0); jumped {
		m.disturbed = memory
	}
}

// read returns the readings of all ranks.
func (m *Model) read(w *Window) []reading {
	readings, logs, noise := make([]reading, len(m.ranks)), logsOfAll(w.Seconds), make([]float64, len(m.ranks))
	for r, e := range m.ranks {
		noise[r] = e.noise
		m.curves.bounds[r].add(w.Shares[r], w.Seconds[r])
	}
	withoutCommon(logs, stat.Median(noise))
	for r, e := range m.ranks {
		if readings[r] = e.read(w.Shares[r], logs[r], w.Opening); w.Blind {
			e.doubtStart(&readings[r], m.windows)
		}
	}
	return readings
}

// endDisturbances returns ranks to their state before a disturbance if the readings show its end.
func (m *Model) endDisturbances(readings []reading) {
	for r, e := range m.ranks {
		switch reading := &readings[r]; {
		case m.disturbed > 0 && e.ended(reading, m.common.variance):
			e.restore()
		case m.disturbed == 1 && e.mayEnd(reading, m.common.variance):
			e.try()
		default:
			continue
		}
		e.compare(&readings[r])
	}
}

// settledAfter is the number of windows after which the choice of shares uses a margin for the errors of the curves.
// Before that, shares still change much. Smaller: too few shares are tried.
const settledAfter = 30

// caution times sqrt(2 ln ranks) is this margin, in standard deviations. Larger: too few shares are tried.
const caution = 0.27

// Fitted is the time of a rank on its curve at the share in use, and the standard error of this time, in s; NaN:
// unknown.
type Fitted struct{ Seconds, Error float64 }

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

// largeType is the number of ranks above which the ranks of a type share one curve, and differ from their type only if
// the number of ranks does not explain their times. Smaller: ranks that differ are found later. Larger: noise makes one
// of the ranks of a type appear slow or fast, and intervals are too narrow.
const largeType = 16

// manyRanks is the number of ranks up to which all thresholds are those of few ranks, and each curve is fitted in each
// window. Larger: a decision with many ranks takes longer.
const manyRanks = 64

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
