package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// A rank borrows the curve of its type ([typeCurve]) at its own level, while its measured shares agree with that curve.
// A decision then fits one curve for each type with many ranks. A rank that disagrees has its own curve.

// borrow gives a rank the curve of its type, and reports whether the rank agrees with that curve.
func (m *Model) borrow(rank int, sigmas float64) bool {
	e, t := m.ranks[rank], m.types.curveOf(rank)
	if t == nil || e.current < 0 {
		return false
	}
	if e.odd = !e.fits(t); e.odd {
		return false
	}
	lift, variance, ok := e.levelOn(t, &m.scratch)
	if !ok {
		return false
	}
	e.shape, e.borrowed, e.lift, e.liftVariance = t.shape, t, lift, variance
	e.drawn, e.level = math.NaN(), 0
	now := e.cells[e.current]
	mean, cautious := t.curves(m.options.Limits[rank], sigmas)
	m.curves.borrow(rank, mean, cautious, stat.Exp(t.log(now.samples)+lift)/mean.At(now.samples))
	return true
}

// fits reports whether the measured shares of a rank have the ratios that a curve gives them.
func (e *posterior) fits(t *typeCurve) bool {
	at, now := e.current, e.cells[e.current]
	was := t.log(now.samples)
	for i, c := range e.cells {
		if i == at {
			continue
		}
		variance := t.ratioVariance(c.samples, now.samples) + shapeError*shapeError + e.cov[i][i] + e.cov[at][at] -
			2*e.cov[i][at]
		off := c.log - now.log - (t.log(c.samples) - was)
		if math.Abs(off) > leastShift && stat.Square(off) > stat.Square(e.peers.likely)*variance {
			return false
		}
	}
	return true
}

// levelOn returns the log of the level of a rank on a curve, and its variance: the generalized least squares over its
// measured shares. The further a share is from the one measured last, the more the ratio of their times may differ from
// that of the curve. ok is false if the computation fails numerically.
func (e *posterior) levelOn(t *typeCurve, scratch *[]float64) (lift, variance float64, ok bool) {
	n, now := len(e.cells), e.cells[e.current]
	if need := n*n + 2*n; cap(*scratch) < need {
		*scratch = make([]float64, need)
	}
	l, ones, off := (*scratch)[:n*n], (*scratch)[n*n:n*n+n], (*scratch)[n*n+n:n*n+2*n]
	for i, c := range e.cells {
		ones[i], off[i] = 1, c.log-t.log(c.samples)
		copy(l[i*n:i*n+i+1], e.cov[i])
		if c.samples == now.samples {
			l[i*n+i] += 1e-9
		} else {
			r := t.ratio(c.samples, now.samples)
			l[i*n+i] += r.shape + r.other + 1e-9
		}
	}
	if !cholesky(l, n) {
		return 0, 0, false
	}
	forward(l, ones)
	forward(l, off)
	variance = 1 / dot(ones, ones)
	return dot(ones, off) * variance, variance, true
}

// under is [shape.under] for the curve of the rank, without the rank's lift. A borrowed curve may end before limit.
func (e *posterior) under(tile int, sigmas float64, limit int) *divide.Points {
	if e.borrowed == nil {
		return pointsOf(e.shape.under(tile, sigmas, limit), false)
	}
	// A decision chooses only shares within reach. With tiles, a curve has a point for each share.
	_, most := e.shape.reach()
	limit = min(limit, int(math.Ceil(most)))
	return e.borrowed.under.get(hypothetical{tile, sigmas, limit}, func() *divide.Points {
		return pointsOf(e.shape.under(tile, sigmas, limit), true)
	})
}

// pointsOf returns the points of a curve; nil: there is no curve.
func pointsOf(c divide.Curve, shared bool) *divide.Points {
	if c == nil {
		return nil
	}
	return divide.NewPoints(c, shared)
}

// optimistic returns the mean curve of the rank minus a number of standard deviations at the shares whose mean time is
// at most upTo, in s, and the mean curve at other shares. Both are without the rank's lift.
func (e *posterior) optimistic(limit int, sigmas, upTo float64) *divide.Points {
	if e.borrowed == nil {
		mean, faster := e.shape.curves(limit, -sigmas)
		return divide.NewPoints(fasterUpTo(mean, faster, upTo), false)
	}
	t := e.borrowed
	both := t.optimistic.get(optimism{sigmas, limit}, func() (both [2]divide.Curve) {
		both[0], both[1] = e.shape.curves(limit, -sigmas)
		return both
	})
	mean, faster := both[0], both[1]
	end := 0 // number of points with a mean time of at most upTo: it determines these points, and few numbers differ
	for _, p := range mean {
		if p.Seconds <= upTo {
			end++
		}
	}
	return t.optimisticTo.get(optimismTo{optimism{sigmas, limit}, end}, func() *divide.Points {
		return divide.NewPoints(fasterUpTo(mean, faster, upTo), true)
	})
}

// fasterUpTo returns the curve faster with the points of mean whose times are above upTo.
func fasterUpTo(mean, faster divide.Curve, upTo float64) divide.Curve {
	out := slices.Clone(faster)
	for i := range mean {
		if mean[i].Seconds > upTo {
			out[i].Seconds = mean[i].Seconds
		}
	}
	return out
}
