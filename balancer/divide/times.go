package divide

import "math"

// times are the times of a rank for its fewest units and for each further unit, in s. The time of n units beyond the
// fewest is base[n] times factor, except for a small relative error. Ranks that share the points of their curves also
// share base, so that the times of many ranks take little time and memory.
type times struct {
	base   []float64
	factor float64
	exact  bool // base has the times themselves, and factor is 1
}

// exactTimes returns lists of times without an error.
func exactTimes(lists [][]float64) []times {
	out := make([]times, len(lists))
	for r, list := range lists {
		out[r] = times{list, 1, true}
	}
	return out
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

// allWithin returns a number of samples up to which all shares certainly finish within seconds; 0: unknown.
func (s *Scaled) allWithin(seconds float64) int {
	within := s.unscaled(seconds * surely)
	highest := s.highestUpTo()
	low, high := 0, len(highest)
	for low < high {
		if middle := (low + high) / 2; highest[middle] > within {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low == 0 {
		return 0
	}
	samples := s.Points.Curve[low-1].Samples
	if s.PerSample*min(samples, s.Largest) > seconds*surely {
		return 0
	}
	return int(samples)
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
