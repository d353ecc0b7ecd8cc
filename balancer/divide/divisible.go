package divide

import "math"

// Divisible returns the time of the slowest rank, in s, if shares could be any real numbers. It divides the batch among
// the ranks with shares[r] > 0. most contains the largest shares of the ranks.
func Divisible(total int, curves []Scaled, shares, most []int) float64 {
	low, high := 0.0, 0.0
	for r := range curves {
		if shares[r] > 0 {
			high = max(high, curves[r].At(float64(shares[r])))
		}
	}
	top := high
	ranks := make([]divisible, len(shares))
	for r := range curves {
		if shares[r] > 0 {
			ranks[r].set(&curves[r], most[r])
			ranks[r].at = curves[r].next(float64(shares[r])) // as all ranks finish these shares within high
		}
	}
	sum := func(seconds float64) (samples float64) {
		for r := range ranks {
			if shares[r] > 0 {
				samples += ranks[r].inverse(&curves[r], seconds, most[r])
			}
		}
		return samples
	}
	// The sum is nearly a line, so the secant finds the time in a few steps. The bisection below, whose steps give the
	// result, then knows nearly all sums.
	const near, around = 1e-7, 1e-6
	want := float64(total)
	last, at := 0.0, high
	for lastSum, i := 0.0, 0; i < 5 && at != last; i++ {
		now := sum(at)
		next := at + (want-now)*((at-last)/(now-lastSum))
		if !(next > 0 && next <= 2*high) {
			break
		}
		last, lastSum, at = at, now, next
		if math.Abs(at-last) < near*at {
			break
		}
	}
	few, many := at*(1-around), at*(1+around)
	if sum(few) >= want {
		few, many = 0, few
	} else if sum(many) < want {
		few, many = many, math.Inf(1)
	}
	for range 20 { // a millionth of the time
		mid := (low + high) / 2
		if mid >= many || mid > few && sum(mid) >= want {
			high = mid
		} else {
			low = mid
		}
	}
	return min(high, top)
}

// divisible is the part of a curve from its valley on, as a rising curve.
type divisible struct {
	ascent *Scaled // nil: the curve falls after its valley, and its rising curve was not needed yet
	end    float64 // time of the largest share
	lowest int     // point of the valley, if ascent is nil
	at     int     // point near the last inverse, unless the curve has another valley than its first point
	last   segment // of the rising curve, in which the last inverse was
}

// segment is a part of a rising curve between two points: times from low to high (s), exclusive, belong to the shares
// from before to end.
type segment struct{ low, high, before, end float64 }

// inverse returns the share of a time.
func (s *segment) inverse(seconds float64) float64 {
	return s.before + (s.end-s.before)*((seconds-s.low)/(s.high-s.low))
}

// risingSegment returns the part of the rising curve between two points. high is the longest time up to the first one:
// the rising curve is flat until the line between the points reaches this time again, as in [Curve.rising].
func risingSegment(high float64, from, to Point) segment {
	s := segment{high, to.Seconds, from.Samples, to.Samples}
	if from.Seconds < high {
		back := s.before + (s.end-s.before)*((high-from.Seconds)/(to.Seconds-from.Seconds))
		if back > s.before && back < s.end {
			s.before = back
		}
	}
	return s
}

func (d *divisible) set(c *Scaled, most int) {
	if rises, _ := c.isValid(); rises {
		d.rising(c, most)
	} else {
		d.lowest = c.lowestPoint()
	}
}

func (d *divisible) rising(c *Scaled, most int) {
	d.ascent, d.end, d.at, d.last = c, c.At(float64(most)), 0, segment{}
}

// inverse returns the largest real share, at most limit, that the rank finishes within seconds.
func (d *divisible) inverse(c *Scaled, seconds float64, limit int) float64 {
	if seconds >= d.last.low && seconds < d.last.high && (d.ascent == nil || d.end > seconds) {
		return min(d.last.inverse(seconds), float64(limit)) // successive searches have similar times
	}
	if d.ascent == nil {
		samples, ok := d.smoothedFrom(c, seconds, float64(limit))
		if ok {
			return samples
		}
		d.rising(&Scaled{Points: NewPoints(c.Whole().smoothed().ascent(), false)}, limit)
	}
	return d.risingFrom(seconds, float64(limit))
}

// lowestPoint is [Curve.valley].
func (s *Scaled) lowestPoint() (lowest int) {
	least := s.seconds(0)
	later := s.lowestFrom()
	for i := 1; i < len(later); i++ {
		if s.scaled(later[i])*surely > least { // no later time is shorter; least times only make times longer
			break
		}
		if t := s.seconds(i); t < least {
			least, lowest = t, i
		}
	}
	return lowest
}

// smoothedInverse is [Scaled.inverse] of the ascent of the smoothed curve ([Curve.smoothed]), without a copy of the
// curve. lowest is the point of the valley. ok is false if the curve passes the time only beyond limit, or never.
func (s *Scaled) smoothedInverse(lowest int, seconds, limit float64) (samples float64, ok bool) {
	c := s.Points.Curve
	last := s.seconds(lowest)
	if seconds < last {
		return 0, true
	}
	high := last // longest time so far
	for i := lowest + 1; i < len(c); i++ {
		t := s.seconds(i)
		if t <= seconds {
			high, last = max(high, t), t
			continue
		}
		if c[i].Samples >= limit {
			return 0, false
		}
		part := risingSegment(high, Point{c[i-1].Samples, last}, Point{c[i].Samples, t})
		return min(part.inverse(seconds), limit), true
	}
	return 0, false
}

// risingFrom is [Scaled.inverse]. It searches the first point whose time is above seconds from d.at on.
func (d *divisible) risingFrom(seconds, limit float64) float64 {
	s := d.ascent
	if seconds < s.seconds(0) {
		return 0
	}
	if d.end <= seconds {
		return limit
	}
	d.at = s.afterFrom(d.at, seconds)
	if i := d.at; i > 0 && i < len(s.Points.Curve) {
		a, b := s.point(i-1), s.point(i)
		d.last = segment{a.Seconds, b.Seconds, a.Samples, b.Samples}
	}
	return min(s.passesAt(d.at, seconds, limit), limit)
}

// smoothedFrom is [Scaled.smoothedInverse]. If the valley is the first point, it searches the first point whose time is
// above seconds from d.at on.
func (d *divisible) smoothedFrom(s *Scaled, seconds, limit float64) (samples float64, ok bool) {
	if d.lowest > 0 {
		return s.smoothedInverse(d.lowest, seconds, limit)
	}
	if seconds < s.seconds(0) {
		return 0, true
	}
	c, highest, i := s.Points.Curve, s.highestUpTo(), max(d.at, 1)
	// up returns the longest time up to a point: factors and least times keep the order of times.
	up := func(i int) float64 {
		t := s.scaled(highest[i])
		if least := s.PerSample * min(c[i].Samples, s.Largest); s.PerSample != 0 && !(t >= least) {
			return least
		}
		return t
	}
	for i < len(c) && !(up(i) > seconds) {
		i++
	}
	for i > 1 && up(i-1) > seconds {
		i--
	}
	if d.at = i; i >= len(c) || c[i].Samples >= limit {
		return 0, false
	}
	d.last = risingSegment(up(i-1), s.point(i-1), s.point(i))
	return min(d.last.inverse(seconds), limit), true
}
