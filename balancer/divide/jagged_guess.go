package divide

import "math"

// guess is a sample of the ranks, from which the time of a division follows nearly.
type guess struct {
	units
	curves []Scaled
	want   float64 // units of the sample, if it gets its part of the batch
	least  float64 // within a shorter time, a rank would be left out, s
	most   float64 // within this time, each rank of the sample finishes all units that it may have, s
	// balanced is the time in which the sample finishes want units, s. The division takes longer if a rank is left out
	// within it.
	balanced float64
}

// guessMargin is the factor on a guess that makes most guesses long enough.
const guessMargin = 1.02

func (u units) guessJagged(curves []Scaled) guess {
	const most = 1024
	n := min(len(curves), most)
	g := guess{units: u, curves: make([]Scaled, n)}
	g.limit, g.floor, g.last = make([]int, n), make([]int, n), -1
	for i := range n {
		r := i
		if n < len(curves) {
			r = sampled(i, len(curves))
		}
		g.curves[i], g.limit[i], g.floor[i] = curves[r], u.limit[r], u.fewest(r)
		if u.limit[r] > 0 {
			c := &curves[r]
			for k := range c.Points.Curve {
				g.most = max(g.most, c.seconds(k))
			}
			g.most = max(g.most, c.At(float64(u.samples(r, u.limit[r]))))
		}
	}
	g.most = min(g.most, math.MaxFloat64) // seconds halves a finite range
	g.want = float64(u.total) * float64(n) / float64(len(curves))
	for r := range curves {
		if u.limit[r] > 0 {
			c := &curves[r]
			at := min(c.next(float64(u.samples(r, u.fewest(r)))), len(c.Points.Curve)-1)
			g.least = max(g.least, c.scaled(c.lowestFrom()[max(at-1, 0)]))
		}
	}
	g.balanced = g.seconds(g.want)
	return g
}

// time returns a time within which the sample finishes about its part of the batch, for the first try and later ones. A
// wrong time costs time, and does not change the result. The time is hardly longer than needed: if times grow little
// with the units, lists of all times up to a longer one would take much memory.
func (g *guess) time(try int) float64 {
	const longer, more = 1.1, 1.25
	retry := float64(try)
	seconds := g.balanced * guessMargin * math.Pow(longer, retry)
	if enough := g.want * math.Pow(more, retry+1); g.finished(seconds) > enough {
		seconds = min(seconds, g.seconds(enough)*(1+1e-6))
	}
	return max(seconds, g.least*guessMargin*math.Pow(longer, retry))
}

// seconds returns the time in which the sample finishes a number of units.
func (g *guess) seconds(want float64) float64 {
	low, high := 0.0, g.most
	for high-low > 1e-4*high {
		middle := low + (high-low)/2
		switch {
		case middle == low: // no number is between the two, for example if high is the smallest number
			return high
		case g.finished(middle) >= want:
			high = middle
		default:
			low = middle
		}
	}
	return high
}

// finished returns the number of units that the sample finishes within seconds.
func (g *guess) finished(seconds float64) (sum float64) {
	for r := range g.curves {
		if g.limit[r] > 0 {
			n := int(g.curves[r].last(seconds, float64(g.samples(r, g.limit[r])))) / g.size
			sum += float64(max(min(n, g.limit[r]), g.floor[r]))
		}
	}
	return sum
}

// last returns about the largest share, at most limit, that finishes within seconds; 0: none.
func (s *Scaled) last(seconds, limit float64) float64 {
	c := s.Points.Curve
	i := s.below(seconds)
	for i >= 0 && s.seconds(i) > seconds { // least times, and rounding errors
		i--
	}
	if i < 0 {
		return 0
	}
	if len(c) == 1 {
		return limit
	}
	a, b := s.point(i), Point{}
	if i+1 < len(c) {
		b = s.point(i + 1)
	} else if a, b = s.point(i-1), a; b.Seconds <= a.Seconds {
		return limit
	}
	if b.Seconds <= a.Seconds {
		return min(b.Samples, limit)
	}
	return min(a.Samples+(b.Samples-a.Samples)*((seconds-a.Seconds)/(b.Seconds-a.Seconds)), limit)
}
