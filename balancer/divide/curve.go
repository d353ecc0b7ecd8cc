package divide

import (
	"fmt"
	"math"
)

// Point is a rank's step time at one share.
type Point struct {
	Samples float64 // > 0
	Seconds float64 // >= 0: the rank's own time, without waits for other ranks
}

// Curve is the step time of a rank as a function of its share. It is linear between the points, and flat below the
// first point. Beyond the last point, it continues with the slope of the last two points if this slope is positive,
// otherwise it is flat. A rank without samples takes no time.
type Curve []Point // ascending in Samples, at least one

// Check returns an error if the points do not form a curve.
func (c Curve) Check() error {
	if len(c) == 0 {
		return fmt.Errorf("got a curve without points")
	}
	for i, p := range c {
		if !(p.Samples > 0) || math.IsInf(p.Samples, 0) || !(p.Seconds >= 0) || math.IsInf(p.Seconds, 0) {
			return fmt.Errorf(
				"point %d: got %v samples in %v s, want finite numbers, samples above 0 and a time of at least 0", i,
				p.Samples, p.Seconds)
		}
		if i > 0 && p.Samples <= c[i-1].Samples {
			return fmt.Errorf("point %d: got %v samples after %v, want ascending numbers of samples", i, p.Samples,
				c[i-1].Samples)
		}
	}
	return nil
}

// risesAndIsValid returns [Curve.Rises], and whether [Curve.Check] returns no error. It reads the curve once, because
// the solvers check the curves of all ranks.
func (c Curve) risesAndIsValid() (rises, valid bool) {
	rises, valid = true, len(c) > 0
	last := Point{}
	for _, p := range c {
		valid = valid && p.follows(last)
		rises = rises && p.Seconds >= last.Seconds
		last = p
	}
	return rises, valid
}

// follows reports whether the point is valid after the last one.
func (p Point) follows(last Point) bool {
	return p.Samples > last.Samples && p.Samples <= math.MaxFloat64 && p.Seconds >= 0 && p.Seconds <= math.MaxFloat64
}

// Rises reports whether the curve is non-decreasing: more samples never take less time.
func (c Curve) Rises() bool {
	for i := 1; i < len(c); i++ {
		if c[i].Seconds < c[i-1].Seconds {
			return false
		}
	}
	return true
}

// At returns the time of a share, in seconds.
func (c Curve) At(samples float64) float64 {
	if samples <= 0 {
		return 0
	}
	i := c.first(func(p Point) bool { return p.Samples >= samples })
	switch {
	case i == 0:
		return c[0].Seconds
	case i == len(c):
		if i--; i == 0 || c[i].Seconds <= c[i-1].Seconds {
			return c[i].Seconds
		}
	}
	return Between(c[i-1], c[i], samples)
}

// first returns the index of the first point for which found is true, or the number of points. found must be false for
// all earlier points, and true for all later ones. The compiler inlines the binary search, which is the inner loop of
// the solver.
func (c Curve) first(found func(Point) bool) int {
	low, high := 0, len(c)
	for low < high {
		if middle := (low + high) / 2; found(c[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// Between returns the time of a share on the line through two points.
func Between(a, b Point, samples float64) float64 {
	if a.Seconds == b.Seconds {
		return a.Seconds
	}
	return a.Seconds + (b.Seconds-a.Seconds)*((samples-a.Samples)/(b.Samples-a.Samples))
}

// rising returns the lowest rising curve that is nowhere below this curve.
func (c Curve) rising() Curve {
	if c.Rises() {
		return c
	}
	// From the start of a fall until the line reaches the same time again, the result is flat. The end of the flat part
	// needs an additional point.
	out := append(make(Curve, 0, len(c)+len(c)/4), c[0])
	high := c[0].Seconds
	for i, p := range c[1:] {
		last := c[i]
		if p.Seconds > high && last.Seconds < high {
			back := last.Samples + (p.Samples-last.Samples)*((high-last.Seconds)/(p.Seconds-last.Seconds))
			if back > out[len(out)-1].Samples && back < p.Samples {
				out = append(out, Point{back, high})
			}
		}
		high = max(high, p.Seconds)
		out = append(out, Point{p.Samples, high})
	}
	return out
}

// LeastSeconds and MostSeconds, in s, limit the times that count as measurements; a clock that jumps gives other
// values.
const LeastSeconds, MostSeconds = 1e-9, 1e9

// Measured returns seconds, or NaN if it is not a measurement.
func Measured(seconds float64) float64 {
	if !(seconds >= LeastSeconds && seconds <= MostSeconds) {
		return math.NaN()
	}
	return seconds
}

// Slowest returns the rank that takes longest for its share, and its time.
func Slowest(curves []Curve, shares []int) (seconds float64, rank int) {
	for r, c := range curves {
		if t := c.At(float64(shares[r])); r == 0 || t > seconds {
			seconds, rank = t, r
		}
	}
	return seconds, rank
}
