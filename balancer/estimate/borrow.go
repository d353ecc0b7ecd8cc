package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Ranks of one type run the same kernels, so with many of them, one curve serves all: a rank borrows the curve of a
// lender of its type, at its own level, while its measured shares agree with that curve. A decision then fits a few
// curves for each type, and not one for each rank. A rank that disagrees with all lenders has its own curve.

// lentShape has what the borrowers of a curve have computed from it. All of them need the same few shares and tiles.
type lentShape struct {
	logs       map[float64]moments           // by share
	under      map[hypothetical]divide.Curve // by hypothesis
	optimistic map[float64][2]divide.Curve   // by number of standard deviations: mean, and faster
}

// moments are the log of a time and its variance.
type moments struct{ log, variance float64 }

// hypothetical is the hypothesis of a tile whose weight is sigmas standard deviations above the expected weight.
type hypothetical struct {
	tile   int
	sigmas float64
}

func (l *lentShape) log(f *shape, samples float64) (value, variance float64) {
	m, known := l.logs[samples]
	if !known {
		m.log, m.variance = f.log(samples)
		l.logs[samples] = m
	}
	return m.log, m.variance
}

// mayBorrow reports whether a rank uses the curve of a lender if its own measurements agree with that curve.
func (t *deviceTypes) mayBorrow(rank int) bool { return t.borrows != nil && t.borrows[rank] }

// borrow gives a rank the curve of the first lender that agrees with its measured shares, and reports whether there is
// one.
func (m *Model) borrow(rank int) bool {
	e := m.ranks[rank]
	if !m.types.mayBorrow(rank) || e.current < 0 {
		return false
	}
	now := e.cells[e.current]
	for _, l := range m.types.lenders[rank] {
		from := m.ranks[l]
		f := from.shape
		if f == nil || from.borrowed || !from.known {
			continue
		}
		if f.lent == nil {
			f.lent = &lentShape{map[float64]moments{}, map[hypothetical]divide.Curve{}, map[float64][2]divide.Curve{}}
		}
		if !e.fits(f) {
			continue
		}
		lift, variance, ok := e.levelOn(f, &m.scratch)
		if !ok {
			continue
		}
		value, _ := f.lent.log(f, now.samples)
		e.shape, e.borrowed, e.lift, e.liftVariance = f, true, lift, variance
		e.drawn, e.level = math.NaN(), 0
		m.curves.borrow(rank, l, stat.Exp(value+lift)/m.curves.mean[l].At(now.samples))
		return true
	}
	return false
}

// fits reports whether the measured shares of a rank have the ratios that a curve gives them.
func (e *posterior) fits(f *shape) bool {
	at, now := e.current, e.cells[e.current]
	was, _ := f.lent.log(f, now.samples)
	for i, c := range e.cells {
		if i == at {
			continue
		}
		value, variance := f.lent.log(f, c.samples)
		variance += e.cov[i][i] + e.cov[at][at] - 2*e.cov[i][at] + shapeError*shapeError
		off := c.log - now.log - (value - was)
		if math.Abs(off) > leastShift && stat.Square(off) > stat.Square(likelySigmas)*variance {
			return false
		}
	}
	return true
}

// levelOn returns the log of the level of a rank on a curve, and its variance: the generalized least squares over its
// measured shares. The further a share is from the one measured last, the more the ratio of their times may differ from
// that of the curve. ok is false if the computation fails numerically.
func (e *posterior) levelOn(f *shape, scratch *[]float64) (lift, variance float64, ok bool) {
	n, now := len(e.cells), e.cells[e.current]
	if need := n*n + 2*n; cap(*scratch) < need {
		*scratch = make([]float64, need)
	}
	l, ones, off := (*scratch)[:n*n], (*scratch)[n*n:n*n+n], (*scratch)[n*n+n:n*n+2*n]
	for i, c := range e.cells {
		value, doubt := f.lent.log(f, c.samples)
		ones[i], off[i] = 1, c.log-value
		far := otherShape(doubt, max(c.samples/now.samples, now.samples/c.samples))
		row := l[i*n : i*n+i+1]
		for j := range row { // Cholesky
			sum := e.cov[i][j] - dot(row[:j], l[j*n:])
			if i != j {
				row[j] = sum / l[j*n+j]
				continue
			}
			if sum += far + 1e-9; !(sum > 0) {
				return 0, 0, false
			}
			row[i] = math.Sqrt(sum)
		}
	}
	forward(l, ones)
	forward(l, off)
	variance = 1 / dot(ones, ones)
	return dot(ones, off) * variance, variance, true
}

// otherShape returns the variance of the log of the ratio of the times of two shares, which grows with the ratio of the
// shares. doubt is the variance of the log of a time on the curve.
func otherShape(doubt, ratio float64) float64 {
	return (doubt + shapeError*shapeError) * stat.Square(min(math.Log(ratio), 1))
}

// log returns the log of a share's time on the curve of the rank, and its variance. A borrowed curve is as uncertain as
// the level of the rank. Apart from the measured shares of the rank, its shape is uncertain, too.
func (e *posterior) log(samples float64) (value, variance float64) {
	if !e.borrowed {
		return e.shape.log(samples)
	}
	value, variance = e.shape.lent.log(e.shape, samples)
	ratio := math.Inf(1) // to the nearest measured share
	for _, c := range e.cells {
		ratio = min(ratio, max(c.samples/samples, samples/c.samples))
	}
	return value + e.lift, e.liftVariance + otherShape(variance, ratio)
}

// sigma returns the standard deviation of a share's time, in s.
func (e *posterior) sigma(samples float64) float64 {
	if !e.borrowed {
		return e.shape.sigma(samples)
	}
	value, variance := e.log(samples)
	return stat.Exp(value) * math.Sqrt(variance)
}

// under is [shape.under] for the curve of the rank, without the rank's lift.
func (e *posterior) under(tile int, sigmas float64, limit int) divide.Curve {
	if !e.borrowed {
		return e.shape.under(tile, sigmas, limit)
	}
	key := hypothetical{tile, sigmas}
	curve, known := e.shape.lent.under[key]
	if !known {
		curve = e.shape.under(tile, sigmas, limit)
		e.shape.lent.under[key] = curve
	}
	return curve
}

// optimistic returns the mean curve of the rank, and the mean minus a number of standard deviations, without the rank's
// lift.
func (e *posterior) optimistic(limit int, sigmas float64) (mean, faster divide.Curve) {
	if !e.borrowed {
		return e.shape.curves(limit, -sigmas)
	}
	both, known := e.shape.lent.optimistic[sigmas]
	if !known {
		both[0], both[1] = e.shape.curves(limit, -sigmas)
		e.shape.lent.optimistic[sigmas] = both
	}
	return both[0], both[1]
}

// borrow gives a rank the curves of another one, multiplied by a factor.
func (c *curves) borrow(rank, from int, factor float64) {
	c.mean[rank] = times(c.mean[from], factor)
	if c.cautious[rank] = c.mean[rank]; !c.one(from) {
		c.cautious[rank] = times(c.cautious[from], factor)
	}
	c.shrunk[rank], c.unsure[rank] = 1, 1
}
