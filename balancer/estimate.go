package balancer

import (
	"cmp"
	"math"
	"slices"
)

// estimate is what is known of one rank's curve. Times are kept as logarithms, because ranks vary in proportion to their time.
//
// Each share that was measured is a cell: a Kalman filter of one state, whose variance grows with every window, so that old knowledge
// fades. Between and beyond the cells the curve comes from a regression ([estimate.fit]).
type estimate struct {
	cells   []cell
	noise   float64 // variance of the log of a step's time
	weight  float64 // steps behind noise
	drift   float64 // innovations of late, summed with forgetting: many of one sign are no noise
	current int     // index of the cell measured last, -1 before the first measurement
	assumed bool    // cells are from an earlier run: their height is not this run's
	shifted float64 // by how much the last window moved all cells, log; 0: it did not
}

type cell struct {
	samples  float64
	log      float64 // of seconds
	variance float64 // of log
	age      int     // windows since it was measured
}

// What the estimate takes for granted, all relative to a rank's time.
const (
	priorNoise   = 0.03   // standard deviation of a step
	priorWeight  = 4.0    // steps that priorNoise counts as
	memoryWeight = 120.0  // steps that noise is averaged over
	windowNoise  = 0.002  // standard deviation of a window's mean that more steps do not reduce
	wander       = 0.0002 // standard deviation by which a rank's speed wanders from window to window
	stale        = 0.002  // likewise of a share that is not measured
	priorError   = 0.05   // standard deviation of a curve from an earlier run
	priorCells   = 10     // that a curve from an earlier run becomes
	mostCells    = 14
	shiftSigmas  = 4.5  // an innovation of so many standard deviations at a known share is a change of speed,
	shiftLeast   = 0.03 // if it is at least this large
	driftSigmas  = 4.0  // of the forgetting sum of innovations
	driftForget  = 0.6
)

// newEstimate believes a curve of an earlier run, if there is one, in its shape from 1 sample to limit.
func newEstimate(prior Curve, limit int) *estimate {
	e := &estimate{noise: priorNoise * priorNoise, weight: priorWeight, current: -1}
	for _, p := range prior.within(1, float64(limit)).outline(priorCells) {
		if !math.IsNaN(valid(p.Seconds)) {
			e.cells = append(e.cells, cell{samples: p.Samples, log: math.Log(p.Seconds), variance: priorError * priorError})
		}
	}
	e.assumed = len(e.cells) > 0
	return e
}

// measure takes in the steps of a window, all with the same share: their times in order, s.
func (e *estimate) measure(samples int, seconds []float64) {
	if len(seconds) == 0 {
		return
	}
	logs := make([]float64, len(seconds))
	for i, s := range seconds {
		logs[i] = math.Log(s)
	}
	logs = newest(logs, e.noise)
	value, variance := robustMean(logs)
	n := float64(len(logs))
	if n > 1 {
		keep := min(e.weight, memoryWeight)
		e.noise = (keep*e.noise + (n-1)*variance) / (keep + n - 1)
		e.weight = keep + n - 1
	}
	e.update(float64(samples), value, e.noise/n+windowNoise*windowNoise)
	e.forget()
}

// newest leaves out what came before a jump within the window: the longest beginning that differs from the rest beyond doubt.
func newest(logs []float64, noise float64) []float64 {
	const least, sigmas, jump = 3, 4.5, 0.1
	lowest, highest := make([]float64, len(logs)), make([]float64, len(logs)) // up to each step
	low, high := math.Inf(1), math.Inf(-1)
	for i, l := range logs {
		low, high = min(low, l), max(high, l)
		lowest[i], highest[i] = low, high
	}
	if high-low <= jump {
		return logs
	}
	low, high = math.Inf(1), math.Inf(-1) // from the cut on
	for cut := len(logs) - 1; cut >= 2; cut-- {
		low, high = min(low, logs[cut]), max(high, logs[cut])
		// Every step since must be on the new side, or one slow step would count as a jump. Where the two sides overlap they need no medians,
		// which are what costs.
		if cut > len(logs)-least || low < highest[cut-1] && high > lowest[cut-1] {
			continue
		}
		before, after := median(logs[:cut]), median(logs[cut:])
		spread := math.Sqrt(noise * math.Pi / 2 * (1/float64(cut) + 1/float64(len(logs)-cut))) // of a difference of medians
		if d := after - before; math.Abs(d) > max(sigmas*spread, jump) && sameSide(logs[cut:], before+d/2, d) && sameSide(logs[:cut], before+d/2, -d) {
			return logs[cut:]
		}
	}
	return logs
}

func sameSide(logs []float64, middle, direction float64) bool {
	for _, l := range logs {
		if (l-middle)*direction < 0 {
			return false
		}
	}
	return true
}

// robustMean is the mean and variance of logs, those far from the median taken as at its edge (Huber): a slow step
// (a checkpoint, another process) moves them little. Where two fifths are far they are no exceptions, as with a CPU quota that every other step uses
// up: then it is the log of the mean of what the logs are of.
func robustMean(values []float64) (m, variance float64) {
	const sigmas, madToSigma = 2.5, 1.4826
	center := median(values)
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - center)
	}
	edge := max(sigmas*madToSigma*median(distances), 0.03)
	far := 0
	for _, d := range distances {
		if d > edge {
			far++
		}
	}
	if 5*far >= 2*len(values) {
		return plainMean(values)
	}
	for _, v := range values {
		m += min(max(v, center-edge), center+edge)
	}
	m /= float64(len(values))
	for _, v := range values {
		d := min(max(v, center-edge), center+edge) - m
		variance += d * d
	}
	return m, variance / max(float64(len(values)-1), 1)
}

// plainMean is the log of the mean time, and the variance of the logs around it.
func plainMean(logs []float64) (m, variance float64) {
	sum := 0.0
	for _, l := range logs {
		sum += exp(l)
	}
	m = math.Log(sum / float64(len(logs)))
	for _, l := range logs {
		variance += square(l - m)
	}
	return m, variance / max(float64(len(logs)-1), 1)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// update takes in the mean log of a window.
func (e *estimate) update(samples, value, variance float64) {
	for i := range e.cells {
		by := wander
		if e.cells[i].samples != samples {
			by = stale
		}
		e.cells[i].variance += by * by
		e.cells[i].age++
	}
	if e.assumed {
		e.assumed = false
		e.move(value-math.Log(e.fit(samples).mean(samples)), 0)
	}
	e.reconsider(samples, value, variance)
	at := slices.IndexFunc(e.cells, func(c cell) bool { return c.samples == samples })
	if at < 0 {
		if e.contradicts(samples, value, variance) {
			e.move(value-math.Log(e.fit(samples).mean(samples)), variance)
		}
		e.cells = append(e.cells, cell{samples: samples, log: value, variance: variance})
		e.current, e.drift = len(e.cells)-1, 0
		return
	}
	e.current = at
	c := &e.cells[at]
	innovation := value - c.log
	sigma := math.Sqrt(c.variance + variance)
	if math.Abs(innovation) > max(shiftSigmas*sigma, shiftLeast) {
		e.shift(innovation, variance)
		return
	}
	e.drift = driftForget*e.drift + innovation/sigma
	if math.Abs(e.drift) > driftSigmas {
		c.variance += 2 * variance // believe what is new
		e.drift = 0
	}
	gain := c.variance / (c.variance + variance)
	c.log += gain * innovation
	c.variance *= 1 - gain
	c.age = 0
}

// contradicts reports whether a share that was never measured before takes less time than a smaller one took, or more than a larger one,
// beyond doubt: then the rank has changed its speed since.
func (e *estimate) contradicts(samples, value, variance float64) bool {
	const leastFall = 0.05 // curves may fall by a little, from tile to tile
	return slices.ContainsFunc(e.cells, func(c cell) bool {
		fall := c.log - value
		if c.samples > samples {
			fall = -fall
		}
		return fall > leastFall+shiftSigmas*math.Sqrt(c.variance+variance)
	})
}

// shift says that the rank has become slower or faster by a factor, with the current share as evidence: so it is with every share. Cells that were
// measured after the current one was last may be from either side of the change: they go, and so do times that nobody could measure.
func (e *estimate) shift(by, variance float64) {
	current := e.cells[e.current]
	kept := e.cells[:0]
	for i, c := range e.cells {
		switch {
		case i == e.current:
			e.current = len(kept)
			kept = append(kept, cell{samples: c.samples, log: c.log + by, variance: variance})
		case c.age >= current.age && math.Abs(c.log+by) <= math.Log(mostSeconds):
			c.log += by
			c.variance += variance
			kept = append(kept, c)
		}
	}
	e.cells, e.drift, e.shifted = kept, 0, by
}

// move makes all cells slower by a factor, the log of which is known with a variance.
func (e *estimate) move(by, variance float64) {
	for i := range e.cells {
		e.cells[i].log += by
		e.cells[i].variance += variance
	}
}

// reconsider takes the last window's shift back where this one, whatever its share, says that the rank is as it was before.
func (e *estimate) reconsider(samples, value, variance float64) {
	by := e.shifted
	if e.shifted = 0; by == 0 {
		return
	}
	f := e.fit(samples)
	expected := f.mean(samples)
	sigma := math.Sqrt(variance + square(f.sigma(samples)/expected))
	now := math.Abs(value - math.Log(expected))
	before := math.Abs(value - math.Log(expected) + by)
	if before < now-sigma {
		e.move(-by, 0)
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

func (e *estimate) merge(keep, drop int) {
	k, d := &e.cells[keep], e.cells[drop]
	f := e.fit(k.samples)
	moved := d.log + math.Log(f.mean(k.samples)/f.mean(d.samples))
	weight := k.variance / (k.variance + d.variance)
	k.log += weight * (moved - k.log)
	k.variance *= 1 - weight
	e.cells = slices.Delete(e.cells, drop, drop+1)
	if drop < e.current {
		e.current--
	}
}
