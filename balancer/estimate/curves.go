package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// timeless is the curve of a rank without measurements: all its times are 0.
var timeless = divide.Curve{{Samples: 1, Seconds: 0}}

// curves are the fitted curves of all ranks.
type curves struct {
	mean     []divide.Scaled // expected times
	cautious []divide.Scaled // expected times plus a margin; equal to mean if there is no margin
	shrunk   []float64       // by rank: factor of [deviceTypes.shrink] on its curves,
	unsure   []float64       // and on their standard error
	bounds   []fastest       // by rank: times that it can reach
	levels   []Level         // by rank, relative to its type; nil: there is no large type
}

// unmeasured are the points of [timeless].
var unmeasured = divide.NewPoints(timeless, true)

func newCurves(ranks int) curves {
	none := divide.Scaled{Points: unmeasured}
	return curves{slices.Repeat([]divide.Scaled{none}, ranks), slices.Repeat([]divide.Scaled{none}, ranks),
		slices.Repeat([]float64{1}, ranks), slices.Repeat([]float64{1}, ranks), make([]fastest, ranks), nil}
}

// draw takes the curves of a fit, with a margin of a number of standard deviations.
func (c *curves) draw(rank int, e *posterior, limit int, sigmas float64) {
	mean, cautious := e.shape.curves(limit, sigmas)
	c.set(rank, mean, cautious)
	c.shrunk[rank], c.unsure[rank] = 1, 1
	e.drawn, e.level = math.NaN(), 0
	if e.current >= 0 && e.trend == 0 {
		e.drawn = e.cells[e.current].log
	}
}

// set gives a rank curves of its own.
func (c *curves) set(rank int, mean, cautious divide.Curve) {
	c.mean[rank] = divide.Scaled{Points: divide.NewPoints(mean, false)}
	if c.cautious[rank] = c.mean[rank]; &mean[0] != &cautious[0] {
		c.cautious[rank].Points = divide.NewPoints(cautious, false)
	}
}

// one reports whether the two curves of a rank have the same points, without a margin.
func (c *curves) one(rank int) bool { return c.mean[rank].Points == c.cautious[rank].Points }

// settle copies the curves of a rank, so that they have no factors.
func (c *curves) settle(rank int) {
	mean := c.mean[rank].Whole()
	cautious := mean
	if !c.one(rank) {
		cautious = c.cautious[rank].Whole()
	}
	c.set(rank, mean, cautious)
}

// scale multiplies the times of a rank's curves by a factor.
func (c *curves) scale(rank int, factor float64) {
	one := c.one(rank)
	if c.mean[rank].Scale(factor); one { // even if Scale copies the points
		c.cautious[rank] = c.mean[rank]
		return
	}
	c.cautious[rank].Scale(factor)
}

// bound raises the times that the ranks cannot reach.
func (c *curves) bound() {
	for r := range c.mean {
		c.bounds[r].raise(&c.mean[r])
		c.bounds[r].raise(&c.cautious[r])
	}
}

// Fitted is the time of a rank on its curve at the share in use, and the standard error of this time, in s; NaN:
// unknown.
type Fitted struct{ Seconds, Error float64 }

// borrow gives a rank the curves of its type, multiplied by a factor.
func (c *curves) borrow(rank int, mean, cautious *divide.Points, factor float64) {
	c.mean[rank], c.cautious[rank] = divide.Scaled{Points: mean}, divide.Scaled{Points: cautious}
	c.scale(rank, factor)
	c.shrunk[rank], c.unsure[rank] = 1, 1
}
