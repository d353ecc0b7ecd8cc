package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// A disturbance, such as other work on a machine, makes ranks slower for some windows. After its end, the ranks are as
// fast as before. If shares change during a disturbance, the times of earlier shares are wrong. They were measured
// before the disturbance, or at another level during it. A share that seems slow is not measured again, so the error
// would remain. Each rank therefore keeps its state from before the disturbance. It returns to this state once this
// state predicts the times again, at any share.

// sureRatio is the least log of the ratio of likelihoods at which a rank returns to its state before a disturbance.
// Smaller: more ranks return because of chance agreement. Larger: the end of more disturbances is not detected.
const sureRatio = 2.0

// learn learns from the window of a rank; m.samples is 0 if it had no share. It reports whether the level jumped, and
// whether the rank may keep its state after this window.
func (e *posterior) learn(m *reading, offset, variance float64) (jumped, calm bool) {
	if m.samples == 0 {
		return false, !e.open()
	}
	calm = e.agrees(m, offset)
	jumped = e.update(m, offset, variance)
	return jumped, calm && !jumped && !e.open()
}

// keep stores the state of a rank after a window without a surprise.
func (e *posterior) keep() {
	c := e.before
	if c == nil {
		c = new(posterior)
	}
	cells, cov := c.cells[:0], c.cov
	*c = *e
	c.before, c.suspect, c.cells, c.cov = nil, 0, append(cells, e.cells...), copyRows(cov, e.cov)
	e.before, e.away, e.back, e.suspect = c, 0, false, 0
}

// restore returns to the state before the disturbance. wander, the rate at which its level moves, does not change. A
// new share that began the disturbance was slow because of the disturbance or of the shape, so the rank keeps its time
// with a large variance. If this share is slow a second time, its time is known, and it does not begin a disturbance.
func (e *posterior) restore() {
	now := *e
	*e = *now.before
	e.cells, e.cov = slices.Clone(e.cells), copyRows(nil, e.cov)
	e.before, e.away, e.wander, e.jumps = now.before, now.away, now.wander, now.jumps
	e.counted = 0 // now may have corrected the number of jumps
	if i := now.cell(now.suspect); i >= 0 && e.cell(now.suspect) < 0 {
		c := now.cells[i]
		if expected, _ := e.expect(c.samples); !math.IsNaN(expected) {
			e.add(c.samples, c.log, now.cov[i][i]+stat.Square(c.log-expected))
			e.cells[len(e.cells)-1].age, e.cells[len(e.cells)-1].steps = c.age, c.steps
			e.forget()
		}
	}
}

// try returns to the state before the disturbance and keeps the current state in its place. If the state before the
// disturbance is wrong, the rank can then return to the current state.
func (e *posterior) try() {
	current := *e
	current.before = nil
	e.restore()
	e.before, e.away, e.back = &current, 0, false
}

// then returns the variance of the change of the level since the state before the disturbance. ok reports whether the
// reading can show that the rank has this state again. common is the variance of the changes that all ranks have in
// common.
func (e *posterior) then(m *reading, common float64) (variance float64, ok bool) {
	return common + float64(e.away)*stat.Square(e.wander), e.before != nil && m.samples > 0 && m.slope == 0
}

// ended reports whether a reading shows that the disturbance has ended. Two successive readings must agree with the
// state before the disturbance. The first one must be much more likely in that state than in the current state. One
// reading may agree by chance, and so may a level that moves steadily.
func (e *posterior) ended(m *reading, common float64) bool {
	common, ok := e.then(m, common)
	if !ok {
		return false
	}
	before, off := e.before.likelihood(m, common)
	if off > likelySigmas {
		e.back = false
	} else if e.back {
		e.back = false
		return true
	} else {
		now, _ := e.likelihood(m, common)
		e.back = before-max(now, 0) > sureRatio // 0: density of a level after a jump, any level within a factor of e
	}
	return false
}

// mayEnd reports whether the disturbance may have ended. The state before it must explain the reading better than a
// random level, and an earlier share must be faster in that state than in the current one. Only a measurement of such a
// share distinguishes the two states.
func (e *posterior) mayEnd(m *reading, common float64) bool {
	common, ok := e.then(m, common)
	if !ok || e.trend != 0 {
		return false
	}
	if before, off := e.before.likelihood(m, common); before < 0 || off > likelySigmas {
		return false
	}
	return slices.ContainsFunc(e.before.cells, func(c cell) bool {
		now, _ := e.expect(c.samples)
		return now-c.log > leastJump
	})
}

// likelihood returns the log of the probability density of a reading's log, up to a constant. off is the distance of
// the reading from its prediction, in standard deviations.
func (e *posterior) likelihood(m *reading, common float64) (log, off float64) {
	expected, doubt := e.expect(m.samples)
	if math.IsNaN(expected) {
		return math.Inf(-1), math.Inf(1)
	}
	sigma := math.Sqrt(doubt + m.variance + common)
	off = math.Abs(m.log-m.shift-expected) / sigma
	return -off*off/2 - math.Log(sigma), off
}

// agrees reports whether a reading agrees with the prediction. offset is the change that all ranks have in common.
func (e *posterior) agrees(m *reading, offset float64) bool {
	expected, doubt := e.expect(m.samples)
	off := m.log - offset - expected - boundarySteps*e.trend
	return m.shift == 0 && !(math.Abs(off) > max(likelySigmas*math.Sqrt(doubt+m.variance), leastShift))
}
