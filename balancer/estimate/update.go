package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

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
