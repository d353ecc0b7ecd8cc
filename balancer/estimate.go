package balancer

import (
	"cmp"
	"math"
	"slices"
)

// estimate is what is known of one rank's curve. Times are kept as logarithms, because ranks vary in proportion to their time.
//
// Each share that was measured is a cell, and the cells are the states of one Kalman filter. From window to window the rank's speed wanders, which
// moves all of them alike, so that what one share shows counts for the others; and each by itself wanders a little where it is not
// measured, because the shape of a curve may change. Between and beyond the cells the curve comes from a regression ([estimate.fit]).
type estimate struct {
	cells   []cell
	cov     [][]float64 // of the cells' logs: how wrong they may be, together
	wander  float64     // standard deviation by which the rank's speed wanders from window to window, log
	noise   float64     // variance of the log of a step's time
	weight  float64     // steps behind noise
	jitter  float64     // variance of the log of a window's mean beside what its steps' noise leaves
	drift   float64     // innovations of late in standard deviations, summed with forgetting: many of one sign are no noise
	current int         // index of the cell measured last, -1 before the first measurement
	assumed bool        // cells are from an earlier run: their height is not this run's
	belief  *belief     // how likely the curve bends how much
	shifted float64     // by how much a window of late moved all cells, log; 0: none did
	since   int         // windows since then
}

type cell struct {
	samples float64
	log     float64 // of seconds
	age     int     // windows since it was measured
	slower  bool    // than a larger share, and no change of speed explains it: one of the two was measured before and after the other, and none was seen since
	doubt   float64 // by how much log was moved for windows with new shares that it contradicts: nothing, if the curve falls instead
}

// What the estimate takes for granted, all relative to a rank's time.
const (
	priorNoise   = 0.03   // standard deviation of a step
	priorWeight  = 4.0    // steps that priorNoise counts as
	memoryWeight = 120.0  // steps that noise is averaged over
	windowNoise  = 0.002  // standard deviation of a window's mean that more steps do not reduce
	stale        = 0.0001 // standard deviation by which a share that is not measured wanders besides, a window
	firstWander  = 0.00005
	leastWander  = 0.00001
	mostWander   = 0.01
	wanderRate   = 0.1  // by how much a window changes wander, log, for each unit that its innovation agrees with those before it,
	wanderBias   = 0.3  // less this: what agrees by chance alone must not add up
	priorError   = 0.05 // standard deviation of a curve from an earlier run
	priorCells   = 10   // that a curve from an earlier run becomes
	mostCells    = 14
	shiftSigmas  = 4.5  // an innovation of so many standard deviations at a known share is a change of speed,
	shiftLeast   = 0.03 // if it is at least this large
	reshape      = 0.05 // by how much each other share may have moved otherwise, of the log of a change of speed
	believed     = 8    // windows after which a change of speed is no longer taken back
	driftSigmas  = 4.4  // of the forgetting sum of innovations: beyond that the speed is another one. Fewer would often be chance, among many ranks
	driftForget  = 0.8
	jitterRate   = 0.05  // at which a window's excess over its steps' noise is learnt
	mostSurprise = 3     // standard deviations that one window counts as
	driftSpread  = 1.667 // standard deviation of that sum where the speed does not wander: 1/sqrt(1-driftForget^2)
	unknownShape = 0.75  // of the distance of a share from those that were measured, log: what it may take else than its curve says, before it counts as what ranks do alike
)

// newEstimate believes a curve of an earlier run, if there is one, in its shape from 1 sample to limit.
func newEstimate(prior Curve, limit int) *estimate {
	e := &estimate{noise: priorNoise * priorNoise, weight: priorWeight, wander: firstWander, current: -1, belief: &beforehand}
	for _, p := range prior.within(1, float64(limit)).outline(priorCells) {
		if !math.IsNaN(valid(p.Seconds)) {
			e.add(p.Samples, math.Log(p.Seconds), priorError*priorError)
		}
	}
	for i := range e.cells {
		e.cells[i].slower = true
	}
	e.assumed = len(e.cells) > 0
	return e
}

// cell is the index of a share's cell, -1 if it has none.
func (e *estimate) cell(samples float64) int {
	return slices.IndexFunc(e.cells, func(c cell) bool { return c.samples == samples })
}

// away is how far a share is from those that were measured, log.
func (e *estimate) away(samples float64) float64 {
	nearest := math.Inf(1)
	for _, c := range e.cells {
		nearest = min(nearest, math.Abs(math.Log(samples/c.samples)))
	}
	return nearest
}

// add makes a cell of a share that has none.
func (e *estimate) add(samples, value, variance float64) {
	n := len(e.cells)
	e.cells = append(e.cells, cell{samples: samples, log: value})
	for i := range e.cov {
		e.cov[i] = append(e.cov[i], 0)
	}
	e.cov = append(e.cov, make([]float64, n+1, mostCells+1))
	e.cov[n][n] = variance
}

// drop forgets a cell.
func (e *estimate) drop(at int) {
	e.cells = slices.Delete(e.cells, at, at+1)
	e.cov = slices.Delete(e.cov, at, at+1)
	for i := range e.cov {
		e.cov[i] = slices.Delete(e.cov[i], at, at+1)
	}
	if at < e.current {
		e.current--
	}
}

// loosen says that all cells may have moved alike.
func (e *estimate) loosen(variance float64) {
	for _, row := range e.cov {
		for j := range row {
			row[j] += variance
		}
	}
}

// update takes in the mean log of a window.
func (e *estimate) update(samples, value, variance float64) {
	e.loosen(e.wander * e.wander)
	for i := range e.cells {
		if e.cells[i].age++; e.cells[i].samples != samples {
			e.cov[i][i] += stale * stale
		}
	}
	if e.assumed {
		e.assumed = false
		e.move(value-math.Log(e.fit(samples).mean(samples)), 0)
	}
	e.reconsider(samples, value, variance)
	at := e.cell(samples)
	if at < 0 {
		if e.contradicts(samples, value, variance) {
			e.doubt(value-math.Log(e.fit(samples).mean(samples)), variance)
			e.drift = 0
		} else if len(e.cells) > 0 {
			e.wandersTo(samples, value, variance)
		}
		e.current = len(e.cells)
		e.add(samples, value, variance)
		e.forget()
		return
	}
	e.confront(at, value)
	e.current = at
	innovation := value - e.cells[at].log
	sigma := math.Sqrt(e.cov[at][at] + variance)
	e.jitters(innovation, sigma)
	if math.Abs(innovation) > max(shiftSigmas*sigma, shiftLeast) {
		e.shift(innovation)
	} else {
		e.wanders(innovation/sigma, variance)
	}
	e.correct(innovation, variance)
}

// wanders learns from an innovation, in standard deviations, how much the rank's speed wanders. The innovations of a filter that forgets as fast as it
// should are independent; of one that lags behind many have the same sign.
func (e *estimate) wanders(innovation, variance float64) {
	together := min(max(innovation*e.drift/driftSpread-wanderBias, -2), 2)
	e.wander = min(max(e.wander*exp(wanderRate*together), leastWander), mostWander)
	e.drift = driftForget*e.drift + innovation
	if math.Abs(e.drift) > driftSigmas*driftSpread {
		e.loosen(2 * variance) // believe what is new
		e.drift = 0
	}
}

// jitters learns how much more windows differ than their steps do: a neighbour comes and goes, and a rank that followed would be late each time.
func (e *estimate) jitters(innovation, sigma float64) {
	seen := min(square(innovation), square(mostSurprise*sigma))
	e.jitter = max(e.jitter+jitterRate*(seen-square(sigma)), 0)
}

// wandersTo learns the same from a share that is measured for the first time, as far as its curve was known there: what is beyond may be the curve's error. A rank
// whose speed drifts has another share after each decision, and would teach nothing otherwise.
func (e *estimate) wandersTo(samples, value, variance float64) {
	expected, doubt := e.fit(samples).log(samples)
	total := variance + doubt
	e.wanders((value-expected)/math.Sqrt(total)*variance/total, variance)
}

// correct is the Kalman filter's: the current cell's innovation moves each cell by as much as their errors go together.
func (e *estimate) correct(innovation, variance float64) {
	at := slices.Clone(e.cov[e.current])
	total := at[e.current] + variance
	for i := range e.cells {
		gain := at[i] / total
		e.cells[i].log += gain * innovation
		for j := range e.cells {
			e.cov[i][j] -= gain * at[j]
		}
	}
	e.cells[e.current].age = 0
}

// contradicts reports whether a share that was never measured before takes less time than a smaller one took, or more than a larger one,
// beyond doubt, although the curve is not known to fall.
func (e *estimate) contradicts(samples, value, variance float64) bool {
	const tile = 0.05 // curves may fall by a little, from tile to tile
	for i, c := range e.cells {
		fall := c.log - value
		if c.samples > samples {
			fall = -fall
		}
		if fall > tile+shiftSigmas*math.Sqrt(e.cov[i][i]+variance) {
			return e.fit(samples).fastest(inf) == 0
		}
	}
	return false
}

// doubt says that a share that was never measured takes longer by a factor than its curve says: so it is with every share, if the rank has changed its speed, or else
// the curve falls and all others are as they were. The next window with one of them tells.
func (e *estimate) doubt(by, variance float64) {
	e.move(by, variance)
	for i := range e.cells {
		e.cells[i].doubt += by
	}
}

// confront takes in that a share was measured again, and so whether what is in doubt was moved with reason. Where a share measured meanwhile is smaller and took longer, or
// larger and took less, it is not the rank's speed that has changed.
func (e *estimate) confront(at int, value float64) {
	again := &e.cells[at]
	if doubt := again.doubt; doubt != 0 {
		back := math.Abs(value-again.log+doubt) < math.Abs(value-again.log)
		for i := range e.cells {
			if back {
				e.cells[i].log -= e.cells[i].doubt
			}
			e.cells[i].doubt = 0
		}
	}
	for i := range e.cells {
		c := &e.cells[i]
		switch meanwhile := c.age < again.age; {
		case meanwhile && c.samples < again.samples:
			c.slower = c.log > value+leastFall
		case meanwhile && c.samples > again.samples:
			again.slower = again.slower || value > c.log+leastFall
		}
	}
}

// shift says that the rank has become slower or faster by a factor, with the current share as evidence: so it is with every share. Cells that were
// measured after the current one was last may be from either side of the change: they go, and so do times that nobody could measure.
func (e *estimate) shift(by float64) {
	age := e.cells[e.current].age
	for i := len(e.cells) - 1; i >= 0; i-- {
		if c := e.cells[i]; i != e.current && (c.age < age || math.Abs(c.log+by) > math.Log(mostSeconds)) {
			e.drop(i)
		}
	}
	e.loosen(100 * by * by) // the change is what this window says, whatever was believed
	for i := range e.cells {
		if e.cells[i].slower = false; i != e.current {
			e.cov[i][i] += square(reshape * by)
		}
	}
	e.drift, e.shifted, e.since = 0, by, 0
}

// move makes all cells slower by a factor, the log of which is known with a variance.
func (e *estimate) move(by, variance float64) {
	for i := range e.cells {
		e.cells[i].log += by
	}
	e.loosen(variance)
}

// reconsider takes a shift back where a window soon after it, whatever its share, says that the rank is as it was before: a neighbour took a part of it
// for a while. What was measured meanwhile goes back with the rest.
func (e *estimate) reconsider(samples, value, variance float64) {
	if e.shifted == 0 {
		return
	}
	expected, doubt := e.fit(samples).log(samples)
	now := math.Abs(value - expected)
	before := math.Abs(value - expected + e.shifted)
	e.since++
	if before < now-math.Sqrt(variance+doubt) {
		e.move(-e.shifted, 0)
		e.shifted = 0
	} else if e.since == believed {
		e.shifted = 0
	}
}

func square(x float64) float64 { return x * x }

// forget merges the two neighbours that are nearest to each other, the older into the younger, where there are too many cells. What they say of
// each other is moved along the curve.
func (e *estimate) forget() {
	for len(e.cells) > mostCells {
		order := make([]int, len(e.cells))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(e.cells[a].samples, e.cells[b].samples) })
		least, keep, drop := math.Inf(1), -1, -1
		for i, b := range order[1:] {
			a := order[i]
			if ratio := e.cells[b].samples / e.cells[a].samples; ratio < least {
				least = ratio
				if keep, drop = a, b; e.cells[b].age < e.cells[a].age {
					keep, drop = b, a
				}
			}
		}
		e.merge(keep, drop)
	}
}

// merge takes what the cell to be dropped says, moved along the curve, into the one to be kept.
func (e *estimate) merge(keep, drop int) {
	k, d := &e.cells[keep], e.cells[drop]
	f := e.fit(k.samples)
	moved := d.log + math.Log(f.mean(k.samples)/f.mean(d.samples))
	kk, dd, both := e.cov[keep][keep], e.cov[drop][drop], e.cov[keep][drop]
	weight := 0.0
	if apart := kk + dd - 2*both; apart > 0 {
		weight = min(max((kk-both)/apart, 0), 1)
	}
	k.log += weight * (moved - k.log)
	for i := range e.cells {
		e.cov[keep][i] += weight * (e.cov[drop][i] - e.cov[keep][i])
		e.cov[i][keep] = e.cov[keep][i]
	}
	k.slower = k.slower || d.slower
	e.cov[keep][keep] = square(1-weight)*kk + 2*weight*(1-weight)*both + square(weight)*dd
	e.drop(drop)
}
