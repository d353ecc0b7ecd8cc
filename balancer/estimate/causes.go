package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// The time at a new share can be far from the curve for three reasons: the curve has another shape; the level of the
// rank has moved, so the times of the older shares have moved, too; or other work disturbed the rank while this share
// was in use. One window does not distinguish the three. The model therefore keeps the mean and the covariance of the
// times under all three, each weighted with its probability (assumed-density filter; Maybeck, Stochastic Models,
// Estimation and Control, 1982). A later measurement of any share then decides. How often levels jump, and by how much,
// is learnt from the run.

// endsSoon is the probability that the cause of a slow window ends before the next change of shares, if it is not the
// shape. Smaller: other shares become slow together with the share of a disturbed window. Larger: a rank that is slowed
// for good is detected later.
const endsSoon = 0.5

// jumped returns the probability that a jump, and not the shape, has caused the surprise at a new share. variance is
// that of the surprise if the curve has the expected shape.
func (e *posterior) jumped(samples, surprise, variance float64) float64 {
	nearest := &e.cells[0]
	for i := range e.cells {
		if c := &e.cells[i]; math.Abs(math.Log(samples/c.samples)) < math.Abs(math.Log(samples/nearest.samples)) {
			nearest = c
		}
	}
	// The prediction, and so the surprise, already contains the mean effect of the tiles.
	effect := func(tile int) (mean, variance float64) {
		weight, sigma, _ := tiles[tile].weight()
		spread := sigma * sigma
		for i := range e.shape.parts {
			if p := &e.shape.parts[i]; p.tile == tile {
				weight, spread = p.weight, p.spread
			}
		}
		d := tiles[tile].feature(samples) - tiles[tile].feature(nearest.samples)
		return weight * d, spread * d * d
	}
	usual := 0.0
	for i := range e.shape.parts {
		mean, _ := effect(e.shape.parts[i].tile)
		usual += e.shape.parts[i].chance * mean
	}
	shape, far := 0.0, unknownShape*math.Log(samples/nearest.samples) // far: here the scale of Student's distribution
	for i, chance := range e.shape.chances {
		mean, spread := effect(i)
		shape += chance * student(surprise-mean+usual, variance+far*far+spread)
	}
	jump := e.jumps.density(surprise, variance)
	return jump / (jump + shape)
}

// blame divides the surprise at a new share among its causes, and moves the cells.
func (e *posterior) blame(samples, surprise, variance float64) (by causes) {
	if len(e.cells) == 0 { // the first step was dropped
		return by
	}
	by.level = e.jumped(samples, surprise, variance)
	if surprise > 0 { // other work makes no window faster
		by.level, by.disturbed = (1-endsSoon)*by.level, endsSoon*by.level
	}
	e.suppose(by.level*surprise, by.level*(1-by.level)*stat.Square(surprise)+by.level*variance)
	return by
}

// begin opens a boundary with a surprise that comes from the shape.
func (e *posterior) begin(surprise float64) {
	e.surprise, e.moved, e.confirmed, e.since, e.counted = surprise, false, false, 0, 0
	for i := range e.cells {
		e.cells[i].was = e.cells[i].log
	}
}

// end closes the boundary.
func (e *posterior) end() { e.surprise, e.counted = 0, 0 }

// open reports whether the open surprise has changed the older shares, although the level may not have moved. The rank
// must then keep its state from before it.
func (e *posterior) open() bool {
	return e.surprise != 0 && slices.ContainsFunc(e.cells, func(c cell) bool {
		return c.age > e.since && math.Abs(c.log-c.was) > leastShift
	})
}

// resolve ends the open surprise, because an older share was measured. level is the log by which this share is slower
// than before the surprise. resolve reports whether the surprise, and not its opposite, was the error of the older
// shares. It corrects the number of jumps; a small surprise counts only if the older share jumps.
func (e *posterior) resolve(level float64, jump bool) (older bool) {
	older = math.Abs(level-e.surprise) < math.Abs(level)/2
	if jump || e.counted > 0 {
		jumped := 0.0
		if older != e.moved {
			jumped = 1
		}
		e.jumps.add(e.surprise, jumped-e.counted)
	}
	e.end()
	return older
}

// doubt makes the time of the newest cell uncertain, because the window may have been disturbed. more is the variance
// of the curve at this share, minus that of the measurement.
func (e *posterior) doubt(surprise float64, by causes, more float64) {
	i, square := e.current, stat.Square(surprise)
	e.cells[i].log -= by.disturbed * surprise
	for j := range e.cells {
		if j != i {
			e.cov[i][j] += by.level * by.disturbed * square
			e.cov[j][i] = e.cov[i][j]
		}
	}
	e.cov[i][i] += by.disturbed * ((1-by.disturbed)*square + max(more, 0))
}
