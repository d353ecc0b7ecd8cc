package divide

import "math"

// guessJagged returns a time within which a sample of the ranks finishes about its part of the batch. A wrong guess
// costs time, and does not change the result.
func (u units) guessJagged(curves []Scaled) float64 {
	const most, margin = 1024, 1.02
	n := min(len(curves), most)
	v, sample := u, make([]Scaled, n)
	v.limit, v.floor, v.last = make([]int, n), make([]int, n), -1
	highest := 0.0
	for i := range n {
		r := i
		if n < len(curves) {
			_, part := math.Modf(float64(i) * (math.Phi - 1))
			r = int(part * float64(len(curves)))
		}
		sample[i], v.limit[i], v.floor[i] = curves[r], u.limit[r], u.fewest(r)
		if u.limit[r] > 0 {
			c := &curves[r]
			for k := range c.Points.Curve {
				highest = max(highest, c.seconds(k))
			}
			highest = max(highest, c.At(float64(u.samples(r, u.limit[r]))))
		}
	}
	all := v.timesWithin(sample, highest)
	want := int(float64(u.total) * float64(n) / float64(len(curves)))
	low, high := 0.0, highest
	for range 16 {
		middle, sum := (low+high)/2, 0
		for i, times := range all {
			if len(times) > 0 {
				top := len(times) - 1
				for top > 0 && times[top] > middle {
					top--
				}
				sum += v.floor[i] + top
			}
		}
		if sum >= want {
			high = middle
			for i, times := range all { // longer times are no longer needed
				for len(times) > 1 && times[len(times)-1] > middle {
					times = times[:len(times)-1]
				}
				all[i] = times
			}
		} else {
			low = middle
		}
	}
	for r := range curves { // no rank is left out
		if u.limit[r] > 0 {
			c := &curves[r]
			at := min(c.next(float64(u.samples(r, u.fewest(r)))), len(c.Points.Curve)-1)
			high = max(high, c.scaled(c.lowestFrom()[max(at-1, 0)]))
		}
	}
	return high * margin
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

// timesOf writes the times of a rank for its fewest units and for each further unit.
func (u units) timesOf(rank int, s *Scaled, times []float64) {
	c, samples := s.Points.Curve, float64(u.samples(rank, u.fewest(rank)))
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
			before = s.point(at - 1)
		}
		p := s.point(at)
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
	within := seconds * (1 + 1e-9) // more than the rounding error of the factors
	if seconds >= MostSeconds {
		within = math.Inf(1)
	}
	for _, factor := range s.Factors {
		if factor != 0 {
			within /= factor
		}
	}
	c, lowest := s.Points.Curve, s.lowestFrom()
	low, high := 0, len(c) // the last point that may be within seconds is before low
	for low < high {
		if middle := (low + high) / 2; lowest[middle] > within {
			high = middle
		} else {
			low = middle + 1
		}
	}
	samples := float64(u.samples(rank, u.limit[rank]))
	if i := low - 1; i+1 < len(c) {
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
