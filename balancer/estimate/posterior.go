package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// How the level of a rank moves.
const (
	jitterRate = 0.05 // fraction of a window's excess over the noise of its steps that goes into jitter
	// mostUnknown, times the variance of a window's mean, is the largest variance of a known time from which jitter is
	// learnt. Larger: a share in doubt makes a noisy rank seem steady.
	mostUnknown = 4.0
	leastWander = 0.00002 // standard deviation by which the level of a steady rank moves, log a window
	reshape     = 0.25    // fraction of wander by which each unmeasured share moves independently
	// wanderRate is the log of the change of wander per window, for each unit by which the innovation agrees with
	// earlier ones.
	wanderRate = 0.1
	wanderBias = 0.3 // subtracted from the agreement, so that chance does not accumulate
	// follow is the weight of each observation in an exponential average. Larger: the average follows changes faster,
	// but also noise.
	follow = 0.3
	// boundarySteps is the number of steps between two windows: the omitted step, and half of each neighbour.
	boundarySteps = 2.0
	unknownHeight = 1.0 // variance of the log of the height of a curve from an earlier run
	// newPart times the square of a surprise at a new share is added to the variance of the level of the older shares.
	newPart = 0.0025
)

// posterior is the belief about one rank's step times. It is a Kalman filter whose states (cells) are the logs of the
// current times of the measured shares. A change of the level moves all cells equally. Two observations distinguish the
// level from the shape of the curve:
//
//   - Within a window, the share is constant, so only the level changes (reading.shift).
//   - If the time of a share without a cell is far from the curve, cross opens a boundary. If a measured share is near
//     and fills the same tiles, cross assumes that the level has moved. Otherwise it weights three causes: another
//     shape, another level, and a disturbance of this window (causes.go). The next measurement of an older share
//     decides. The cells from before the boundary then follow the level, or return to their values
//     ([Model.AskAgain]).
//
// Between and beyond the cells, the curve comes from the regression in [shape].
type posterior struct {
	cells  []cell
	cov    [][]float64 // of the cells' logs
	wander float64     // standard deviation by which the level moves from window to window, log
	noise  float64     // variance of the log of a step's time
	own    float64     // the same by the rank's own steps alone
	weight float64     // steps behind own
	peers  *peers
	jitter float64 // variance of the log of a window's mean that its steps' noise does not explain
	// decaying sum of innovations in standard deviations: many of one sign mean that the level moves
	drift   float64
	trend   float64 // change of the level within the last window, log per step; 0 if noise explains it
	current int     // index of the cell that was measured last, -1 before the first measurement
	known   bool    // the rank was measured in this run, so the height of an earlier run's curve does not apply

	surprise float64 // log difference of a new share from its curve at the open boundary; 0: no boundary is open
	// moved: cross assumed a change of the level; if the shape was the cause, surprise is the error at older shares
	moved     bool
	confirmed bool // AskAgain has considered this surprise
	since     int  // windows since that boundary
	// counted is the probability with which jumps contains the surprise
	counted float64

	jumps   jumps
	suspect float64 // samples of the new share whose surprise was taken for a change of the level; 0: there is none

	// state before the disturbance; without a disturbance, state after the last window without a surprise; nil: none
	// yet
	before *posterior
	away   int  // windows since that state
	back   bool // the last reading was as before the disturbance

	shape *shape // as of the last decision
	// borrowed: the curve of the rank's type; nil: the rank has its own. lift is the log of the rank's times relative
	// to it.
	borrowed           *typeCurve
	lift, liftVariance float64
	drawn              float64 // log of the time of the share in use, as of the last drawn curve
	// level is the variance of the log of the time of the share at which shrink compares the rank; 0: not yet computed
	level float64
	odd   bool // its measured shares contradict the curve of its type
}

// newPosterior returns the posterior of a rank before the first window. sigma is the standard error of the log of a
// time of the prior curve.
func newPosterior(prior divide.Curve, sigma float64, limit int) *posterior {
	e := &posterior{noise: priorNoise * priorNoise, own: priorNoise * priorNoise, weight: priorWeight, peers: fewPeers,
		wander: leastWander, current: -1}
	for _, p := range simplify(within(prior, 1, float64(limit)), mostShares/2) {
		if !math.IsNaN(divide.Measured(p.Seconds)) {
			e.add(p.Samples, math.Log(p.Seconds), shapeError*shapeError+sigma*sigma)
		}
	}
	if n := len(e.cells); n > 0 {
		e.draw(e.cells, e.cov, &priorBends, tilePriors(), e.cells[n-1].samples)
	}
	e.loosen(unknownHeight)
	return e
}

func (e *posterior) cell(samples float64) int {
	return slices.IndexFunc(e.cells, func(c cell) bool { return c.samples == samples })
}

func (e *posterior) add(samples, value, variance float64) {
	n := len(e.cells)
	e.cells = append(e.cells, cell{samples: samples, log: value, was: value})
	if n == cap(e.cov) || cap(e.cov[:n+1][n]) <= n || n > 0 && cap(e.cov[0]) <= n {
		e.cov = roomier(e.cov, n)
	}
	for i := range e.cov {
		e.cov[i] = append(e.cov[i], 0)
	}
	e.cov = e.cov[:n+1]
	e.cov[n] = e.cov[n][:n+1]
	clear(e.cov[n])
	e.cov[n][n] = variance
}

// loosen adds a variance that all cells have in common.
func (e *posterior) loosen(variance float64) {
	if variance == 0 {
		return
	}
	for _, row := range e.cov {
		for j := range row {
			row[j] += variance
		}
	}
}

// highestLog is the log of the longest time, s.
var highestLog = math.Log(divide.MostSeconds)

// move makes all cells slower by a factor. by is the log of the factor, and variance the variance of by.
func (e *posterior) move(by, variance float64) {
	for i := range e.cells {
		e.cells[i].was += by
	}
	e.suppose(by, variance)
}

// suppose is [posterior.move] for a change of the level that a surprise makes probable.
func (e *posterior) suppose(by, variance float64) {
	for i := range e.cells {
		e.cells[i].log = min(max(e.cells[i].log+by, -highestLog), highestLog)
	}
	e.loosen(variance)
}

// draw fits the curve through the measured shares of the rank and of its lenders, around the share b0.
func (e *posterior) draw(cells []cell, cov [][]float64, before *belief, chances tileBelief, b0 float64) {
	old := e.shape.ownGrid()
	if e.borrowed != nil { // other ranks still use its scratch memory
		old = nil
	}
	e.borrowed, e.lift, e.liftVariance = nil, 0, 0
	e.shape = fitShape(cells, cov, before, chances, b0, old)
}

// expect returns the predicted log of the time of a share, and its variance without measurement noise. NaN: unknown.
func (e *posterior) expect(samples float64) (value, variance float64) {
	if at := e.cell(samples); at >= 0 {
		return e.cells[at].log, e.cov[at][at] + e.wander*e.wander
	}
	if e.shape == nil {
		return math.NaN(), 0
	}
	value, variance = e.log(samples)
	return value, variance + e.wander*e.wander
}

// driftSigma is the standard deviation of posterior.drift if all innovations are independent.
var driftSigma = math.Sqrt(1 / (1 - stat.Square(1-follow)))

// wanders adapts wander to an innovation, in standard deviations. The innovations of a filter that forgets at the right
// rate are independent. If the filter lags behind, many innovations have the same sign.
func (e *posterior) wanders(innovation, variance float64) {
	agrees := min(max(innovation*e.drift/driftSigma-wanderBias, -2), 2)
	e.wander = max(e.wander*stat.Exp(wanderRate*agrees), leastWander)
	e.drift = (1-follow)*e.drift + innovation
	if math.Abs(e.drift) > e.peers.sure*driftSigma {
		e.loosen(2 * variance)
		e.drift = 0
	}
}

// forget drops the cell whose last measurement is oldest.
func (e *posterior) forget() {
	for len(e.cells) > mostShares {
		oldest := -1
		for i, c := range e.cells {
			if i != e.current && (oldest < 0 || c.age > e.cells[oldest].age) {
				oldest = i
			}
		}
		e.cells = slices.Delete(e.cells, oldest, oldest+1)
		free, last := e.cov[oldest], len(e.cov)-1
		copy(e.cov[oldest:], e.cov[oldest+1:])
		e.cov[last] = free // add uses the row again
		e.cov = e.cov[:last]
		for i := range e.cov {
			e.cov[i] = slices.Delete(e.cov[i], oldest, oldest+1)
		}
		if oldest < e.current {
			e.current--
		}
	}
}

// log returns the log of a share's time on the curve of the rank, and its variance. A borrowed curve is as uncertain as
// the level of the rank. Apart from the share that was measured last, its shape is uncertain, too.
func (e *posterior) log(samples float64) (value, variance float64) {
	if e.borrowed == nil {
		return e.shape.log(samples)
	}
	value = e.borrowed.log(samples) + e.lift
	now := e.cells[e.current].samples
	if samples == now {
		return value, e.liftVariance
	}
	r := e.borrowed.ratio(samples, now)
	return value, e.liftVariance + r.shape + r.other
}

// sigma returns the standard deviation of a share's time, in s.
func (e *posterior) sigma(samples float64) float64 {
	if e.borrowed == nil {
		return e.shape.sigma(samples)
	}
	value, variance := e.log(samples)
	return stat.Exp(value) * math.Sqrt(variance)
}

// noiseError returns the variance of the log of the variance that the steps of the rank show.
func (e *posterior) noiseError() float64 { return 2 * (e.weight - priorWeight) / (e.weight * e.weight) }

// useNoise sets the noise of the rank from its own steps and from its peers. A rank that is clearly noisier than its
// type keeps its own noise. A rank that seems to have less noise does not, because too little noise gives false alarms.
func (e *posterior) useNoise() {
	p := e.peers
	if e.noise = e.own; math.IsNaN(p.noise) {
		return
	}
	off, chance := math.Log(max(e.own, leastVariance))-p.noise, e.noiseError()
	spread, known := p.spread, 0.0
	if off > 0 {
		spread = max(spread, off*off-p.likely*p.likely*chance)
	}
	if spread > 0 {
		known = spread / (spread + chance)
	}
	e.noise = stat.Exp(p.noise + known*off)
}
