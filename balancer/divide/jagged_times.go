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

// below returns the last point whose time without the least time is within seconds, or a later point; -1: none.
func (s *Scaled) below(seconds float64) int {
	within := seconds * (1 + 1e-9) // more than the rounding error of the factors
	clamp := MostSeconds           // a shorter time was not clamped by any factor
	for _, factor := range s.Factors {
		if factor != 0 {
			within /= factor
			clamp *= min(factor, 1)
		}
	}
	if seconds >= clamp*(1-1e-9) {
		within = math.Inf(1)
	}
	lowest := s.lowestFrom()
	low, high := 0, len(lowest) // the last point that may be within seconds is before low
	for low < high {
		if middle := (low + high) / 2; lowest[middle] > within {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low - 1
}

// timesWithin returns the times of each rank for its fewest units and for each further unit, up to the most that it may
// finish within seconds.
func (u units) timesWithin(curves []Scaled, seconds float64) [][]float64 {
	times := make([][]float64, len(curves))
	room := memory{ranks: len(curves)}
	for r := range curves {
		if u.limit[r] > 0 {
			few := u.fewest(r)
			times[r] = room.take(r, max(u.upTo(r, &curves[r], seconds), few)-few+1)
			u.timesOf(r, &curves[r], times[r])
		}
	}
	return times
}

// timesOf writes the times of a rank for its fewest units and for each further unit. The times are those of
// [Scaled.At]: this is the inner loop of the solver, so it contains [Scaled.seconds].
func (u units) timesOf(rank int, s *Scaled, times []float64) {
	c, samples := s.Points.Curve, float64(u.samples(rank, u.fewest(rank)))
	first, second, third := s.Factors[0], s.Factors[1], s.Factors[2]
	if second == 0 { // a factor of 1 changes no time that another factor has limited
		second, third = 1, 1
	} else if third == 0 {
		third = 1
	}
	seconds := func(p *Point) float64 {
		t := p.Seconds
		if first != 0 {
			if t *= first; t > MostSeconds {
				t = MostSeconds
			}
			if t *= second; t > MostSeconds {
				t = MostSeconds
			}
			if t *= third; t > MostSeconds {
				t = MostSeconds
			}
		}
		if s.PerSample != 0 {
			if least := s.PerSample * min(p.Samples, s.Largest); !(t >= least) {
				t = least
			}
		}
		return t
	}
	at := s.next(samples)
	known, before := -1, Point{} // the last point, and its index
	for n := range times {
		for at < len(c) && c[at].Samples < samples {
			at++
		}
		if at == 0 || at == len(c) {
			times[n] = s.At(samples)
			samples += float64(u.size)
			continue
		}
		if known != at-1 {
			before = Point{c[at-1].Samples, seconds(&c[at-1])}
		}
		p := Point{c[at].Samples, seconds(&c[at])}
		if p.Samples == samples { // as [Between], whose ratio is 1
			times[n] = before.Seconds + (p.Seconds - before.Seconds)
		} else {
			times[n] = Between(before, p, samples)
		}
		known, before = at, p
		samples += float64(u.size)
	}
}

// upTo returns an upper bound of the units that a rank finishes within seconds.
func (u units) upTo(rank int, s *Scaled, seconds float64) int {
	c, samples := s.Points.Curve, float64(u.samples(rank, u.limit[rank]))
	if i := s.below(seconds); i+1 < len(c) {
		samples = min(samples, c[i+1].Samples)
	} else if i > 0 { // the curve continues with the slope of its last two points
		if a, b := s.point(i-1), s.point(i); b.Seconds > a.Seconds {
			samples = min(samples,
				b.Samples+1+max(seconds-b.Seconds, 0)*((b.Samples-a.Samples)/(b.Seconds-a.Seconds)))
		}
	}
	n := int(samples)
	if rank == u.last {
		n -= u.rest
	}
	return min(n/u.size+1, u.limit[rank])
}

// memory gives out lists of times from large pieces of memory, because one piece for each rank takes longer.
type memory struct {
	ranks int
	free  []float64
}

// take returns a list of n zeros for a rank. The ranks take memory in order.
func (m *memory) take(rank, n int) []float64 {
	if len(m.free) < n {
		const piece = 1 << 16
		m.free = make([]float64, max(n, min(n*(m.ranks-rank), piece)))
	}
	list := m.free[:n:n]
	m.free = m.free[n:]
	return list
}
