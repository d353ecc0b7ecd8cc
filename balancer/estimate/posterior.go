package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Thresholds of changes of a level.
const (
	// likelySigmas, in standard deviations: larger differences of one window are clipped, and a curve certainly falls
	// if its difference is larger.
	likelySigmas = 2.5
	// sureSigmas: beyond this number of standard deviations, the speed of a rank has changed. With fewer, many ranks
	// would give false alarms.
	sureSigmas = 4.5
	leastShift = 0.03 // log: the filter follows smaller changes of speed
	leastJump  = 0.1  // log: smaller jumps of a level begin no disturbance
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

// mostShares is the number of measured shares that a rank remembers. Larger values change the shares little.
const mostShares = 24

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

// cell is a measured share.
type cell struct {
	samples float64
	log     float64 // of seconds
	was     float64 // log without what the open surprise, and windows after it, say about the level of the rank
	age     int     // windows since it was measured
	steps   int     // in which it was measured
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

// roomier returns a copy of the first n rows of a covariance, with room for more rows and columns. All rows are in one
// piece of memory, because each piece costs time when a decision adds a share to many ranks.
func roomier(cov [][]float64, n int) [][]float64 {
	room := n + max(n/2, 3)
	if n <= mostShares {
		room = min(room, mostShares+1) // with one more share, forget drops one
	}
	flat, out := make([]float64, room*room), make([][]float64, room)
	for i := range out {
		out[i] = flat[i*room : i*room : (i+1)*room]
	}
	for i, row := range cov[:n] {
		out[i] = append(out[i], row...)
	}
	return out[:n]
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

// update learns from a window, and reports whether the level of the rank jumped. offset is the change that all ranks
// have in common; the log of the reading contains it.
func (e *posterior) update(m *reading, offset, variance float64) (jumped bool) {
	start, total := m.log-offset-m.shift, m.variance+variance
	e.loosen(e.wander * e.wander)
	if e.trend != 0 {
		e.move(e.trend*boundarySteps, stat.Square(e.trend*boundarySteps))
	}
	expected, doubt := e.expect(m.samples)
	at := e.cell(m.samples)
	for i := range e.cells {
		if e.cells[i].age++; i != at {
			e.cov[i][i] += stat.Square(reshape * e.wander)
		}
	}
	if e.since++; e.since > memory { // the level has moved too much since then
		e.end()
	}
	first := !e.known
	e.known = true
	e.jumps.windows++
	if at < 0 {
		e.current = len(e.cells)
		var by causes
		// In the first windows, the curve is too uncertain to distinguish the level from the shape.
		if !math.IsNaN(expected) && (first || !m.opening) {
			by = e.cross(m.samples, start-expected, doubt, total, first)
		}
		jumped = by.jump() > 0.5
		e.add(m.samples, start, total)
		e.cells[e.current].steps = m.steps
		if by.disturbed > 0 {
			e.doubt(start-expected, by, doubt-total)
		}
		e.forget()
	} else {
		e.current = at
		e.cells[at].steps += m.steps
		jumped = e.follow(start, total, first)
	}
	if e.trend = m.slope; m.shift != 0 {
		e.move(m.shift, m.shiftVariance)
		if e.drift = 0; m.slope == 0 {
			e.jumps.add(m.shift, 1)
		}
	}
	return jumped || m.shift != 0 && m.slope == 0
}

// cross learns from the surprise of a share that has no cell yet. Near a measured share that fills the same tiles, the
// curve is reliable, so a surprise means that the level has moved. Otherwise [posterior.blame] weights the causes of a
// sure surprise, and the shape causes a smaller one.
func (e *posterior) cross(samples, surprise, doubt, variance float64, first bool) (by causes) {
	total := doubt + variance
	if first { // the curve of an earlier run has another height
		e.move(surprise, variance-unknownHeight)
		return by
	}
	sigma := math.Sqrt(total)
	sure := math.Abs(surprise) >= max(e.peers.sure*sigma, leastShift)
	if !sure {
		e.wanders(surprise/sigma*variance/total, variance)
		if math.Abs(surprise) < max(e.peers.likely*sigma, leastShift) {
			return by
		}
	} else if e.alike(samples) {
		e.jumps.add(surprise, 1)
		e.move(surprise, total)
		e.begin(-surprise)
		e.moved, e.counted, e.drift, e.suspect = true, 1, 0, samples
		return causes{level: 1}
	}
	e.loosen(newPart * stat.Square(surprise))
	begins := e.surprise == 0 || !e.open() && math.Abs(surprise) > math.Abs(e.surprise)
	if begins {
		e.begin(surprise)
	}
	if sure {
		by = e.blame(samples, surprise, total)
		e.jumps.add(surprise, by.jump())
		if by.jump() > 0.5 {
			e.suspect = samples
		}
		if begins {
			e.counted = by.jump()
		}
	}
	return by
}

// alike reports whether some measured share is near this share and fills the same tiles. Then no tile that the rank may
// have, with its expected weight before any measurement, makes one of the two slower by more than leastShift. Nearly
// all pairs of shares differ in some tile that rounds up, so such a tile counts only from a higher probability on.
func (e *posterior) alike(samples float64) bool {
	return slices.ContainsFunc(e.cells, func(c cell) bool {
		if math.Abs(math.Log(c.samples/samples)) > math.Log(GridRatio) {
			return false
		}
		for i := range tiles {
			t, least := &tiles[i], leastProbed
			if t.rounds {
				least = leastChance
			}
			weight, _, _ := t.weight()
			if e.shape.chances[i] >= least && math.Abs(weight*(t.feature(c.samples)-t.feature(samples))) > leastShift {
				return false
			}
		}
		return true
	})
}

// follow learns from a share that has a cell, and reports whether the level has jumped.
func (e *posterior) follow(value, variance float64, first bool) (jumped bool) {
	c := &e.cells[e.current]
	innovation := value - c.log
	sigma := math.Sqrt(e.cov[e.current][e.current] + variance)
	jump := math.Abs(innovation) > max(e.peers.sure*sigma, leastShift)
	if before := c.age > e.since; e.surprise != 0 && before {
		weighted, wrong := e.open(), e.moved
		older := e.resolve(value-c.was, jump)
		switch {
		case older && jump: // the level had moved, not the shape
			for i := range e.cells {
				if e.cells[i].age > e.since {
					e.cells[i].log += innovation
				}
			}
			innovation, jump, jumped = 0, false, true
			if wrong && e.away <= e.since+1 { // the level had not moved at all, so there is no disturbance
				e.before = nil
			}
		case older && weighted: // likewise; the filter moves all shares
			jumped = math.Abs(innovation) > leastJump
		}
	}
	switch {
	case first:
	case jump:
		e.loosen(stat.Square(innovation))
		for i := range e.cells { // a cell may have been measured before or after the change of the level
			if e.cells[i].age < c.age {
				e.cov[i][i] += stat.Square(innovation)
			}
		}
		e.drift = 0
		e.end()
		e.jumps.add(innovation, 1)
		jumped = math.Abs(innovation) > leastJump
	default:
		seen := min(stat.Square(innovation), stat.Square(likelySigmas*sigma))
		// Successive innovations of one sign come from the level, not from jitter. An innovation says nothing about
		// jitter if the time was little known.
		unknown := e.cov[e.current][e.current] > mostUnknown*variance
		if excess := seen - stat.Square(sigma); !unknown && (excess < 0 || innovation*e.drift < 0) {
			e.jitter = max(e.jitter+jitterRate*excess, 0)
		}
		e.wanders(innovation/sigma, variance)
	}
	var room [mostShares + 1]float64
	column := append(room[:0], e.cov[e.current]...)
	total := column[e.current] + variance
	for i := range e.cells {
		gain := column[i] / total
		e.cells[i].log += gain * innovation
		row := e.cov[i]
		for j, c := range column {
			row[j] -= gain * c
		}
	}
	c.age = 0
	return jumped
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
