package divide

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// Points are the points of a curve that many ranks may share ([Scaled]), with what the solvers need from them. Several
// goroutines may use them at the same time.
type Points struct {
	Curve
	valid bool
	rises bool
	// by whole samples: the first point that is not below; nil: use a binary search
	first []int32
	// by point: the shortest time of this and of all later ones, and the longest time up to this one; nil: not yet
	// computed. If two goroutines compute a list at the same time, both lists are equal.
	lowest, highest atomic.Pointer[[]float64]
}

// NewPoints returns the points of a curve, which must not change. shared states that many ranks share them.
func NewPoints(c Curve, shared bool) *Points {
	p := &Points{Curve: c}
	if p.rises, p.valid = c.risesAndIsValid(); !p.valid || !shared {
		return p
	}
	const most = 1 << 14 // samples
	p.first = make([]int32, int(min(c[len(c)-1].Samples, most))+1)
	at := int32(0)
	for samples := range p.first {
		for c[at].Samples < float64(samples) {
			at++
		}
		p.first[samples] = at
	}
	return p
}

// Bytes returns the memory of the points.
func (p *Points) Bytes() int64 {
	const point, index, number = 16, 4, 8
	bytes := int64(unsafe.Sizeof(*p)) + point*int64(cap(p.Curve)) + index*int64(cap(p.first))
	for _, list := range []*[]float64{p.lowest.Load(), p.highest.Load()} {
		if list != nil {
			bytes += int64(unsafe.Sizeof(*list)) + number*int64(cap(*list))
		}
	}
	return bytes
}

// next returns the index of the first point that is at least a share above 0.
func (p *Points) next(samples float64) int {
	if at := int(min(samples, 1<<20)); at < len(p.first) && float64(at) == samples {
		return int(p.first[at])
	} else if at--; at >= 0 && at < len(p.Curve) && p.Curve[at].Samples == samples { // a curve with each share
		return at
	}
	return p.Curve.first(func(p Point) bool { return p.Samples >= samples })
}

// lowestFrom returns the shortest time of a point and of all later ones, for each point.
func (p *Points) lowestFrom() []float64 {
	if known := p.lowest.Load(); known != nil {
		return *known
	}
	list, lowest := make([]float64, len(p.Curve)), math.Inf(1)
	for i := len(p.Curve) - 1; i >= 0; i-- {
		lowest = min(lowest, p.Curve[i].Seconds)
		list[i] = lowest
	}
	p.lowest.Store(&list)
	return list
}

// highestUpTo returns the longest time of a point and of all earlier ones, for each point.
func (p *Points) highestUpTo() []float64 {
	if known := p.highest.Load(); known != nil {
		return *known
	}
	list, highest := make([]float64, len(p.Curve)), 0.0
	for i, at := range p.Curve {
		highest = max(highest, at.Seconds)
		list[i] = highest
	}
	p.highest.Store(&list)
	return list
}

// Scaled is a curve whose times are those of shared points, changed for one rank. It takes much less memory than a copy
// of the points, and a processor finds shared points in its cache. The times are rounded as those of a copy whose times
// are multiplied by one factor after the other, so the results of the solvers do not depend on this representation.
type Scaled struct {
	*Points
	// Factors multiply the times, the first one first; 0: no factor, and no later ones. After each, a time is at most
	// MostSeconds.
	Factors [3]float64
	// PerSample (s) times the smaller one of the samples and Largest is the least time.
	PerSample, Largest float64
}

// Plain returns curves as they are.
func Plain(curves []Curve) []Scaled {
	points, out := make([]Points, len(curves)), make([]Scaled, len(curves))
	for r, c := range curves {
		p := &points[r]
		p.Curve = c
		p.rises, p.valid = c.risesAndIsValid()
		out[r].Points = p
	}
	return out
}

// Scale multiplies the times by one more factor. The curve gets points of its own if it has three factors or a least
// time already, or if the factor is 0.
func (s *Scaled) Scale(factor float64) {
	for i := range s.Factors {
		if s.Factors[i] == 0 && factor != 0 && s.PerSample == 0 {
			s.Factors[i] = factor
			return
		}
	}
	whole := s.Whole()
	for i := range whole {
		whole[i].Seconds = min(whole[i].Seconds*factor, MostSeconds)
	}
	*s = Scaled{Points: NewPoints(whole, false)}
}

// scaled returns a time of the points times the factors.
func (s *Scaled) scaled(seconds float64) float64 {
	for _, factor := range s.Factors {
		if factor == 0 {
			break
		}
		if seconds *= factor; seconds > MostSeconds {
			seconds = MostSeconds
		}
	}
	return seconds
}

// seconds returns the time of a point.
func (s *Scaled) seconds(i int) float64 {
	p := &s.Points.Curve[i]
	seconds := s.scaled(p.Seconds)
	if s.PerSample == 0 {
		return seconds
	}
	if least := s.PerSample * min(p.Samples, s.Largest); !(seconds >= least) {
		return least
	}
	return seconds
}

func (s *Scaled) point(i int) Point { return Point{s.Points.Curve[i].Samples, s.seconds(i)} }

// At is [Curve.At].
func (s *Scaled) At(samples float64) float64 {
	if samples <= 0 {
		return 0
	}
	i := s.next(samples)
	switch {
	case i == 0:
		return s.seconds(0)
	case i == len(s.Points.Curve):
		if i--; i == 0 || s.seconds(i) <= s.seconds(i-1) {
			return s.seconds(i)
		}
	}
	return Between(s.point(i-1), s.point(i), samples)
}

// Whole returns a copy of the curve.
func (s *Scaled) Whole() Curve {
	c := make(Curve, len(s.Points.Curve))
	for i := range c {
		c[i] = s.point(i)
	}
	return c
}

// Wholes returns copies of curves.
func Wholes(curves []Scaled) []Curve {
	list := make([]Curve, len(curves))
	for r := range curves {
		list[r] = curves[r].Whole()
	}
	return list
}

// isValid reports whether [Curve.Check] of the whole curve returns no error, and rises is [Curve.Rises] of it. A factor
// keeps the order of times, and the least times rise, too. Other points need a look at the times up to the first fall.
func (s *Scaled) isValid() (rises, valid bool) {
	ok := s.valid && s.PerSample >= 0 && s.Largest >= 0 && s.PerSample <= math.MaxFloat64 &&
		s.Largest <= math.MaxFloat64 && s.PerSample*s.Largest <= math.MaxFloat64
	for _, factor := range s.Factors {
		ok = ok && factor >= 0 && factor <= math.MaxFloat64
	}
	if ok && s.rises {
		return true, true
	}
	rises, valid = true, len(s.Points.Curve) > 0
	last := Point{}
	for i := range s.Points.Curve {
		p := s.point(i)
		valid = valid && p.follows(last)
		rises = rises && p.Seconds >= last.Seconds
		last = p
		if !rises && ok {
			return false, true
		}
	}
	return rises, valid
}

// turnsOnce is [Curve.turnsOnce].
func (s *Scaled) turnsOnce() bool {
	falls, last := true, s.seconds(0) // the curve only falls so far
	for i := 1; i < len(s.Points.Curve); i++ {
		t := s.seconds(i)
		if t > last {
			falls = false
		} else if t < last && !falls {
			return false
		}
		last = t
	}
	return true
}

// most returns the largest share of at most limit samples that a rising curve finishes within seconds, or 0. It is
// exact: At of this share is within seconds, and At of the next share is not.
func (s *Scaled) most(seconds float64, limit int) int {
	if limit < 1 || s.At(1) > seconds {
		return 0
	}
	if s.At(float64(limit)) <= seconds {
		return limit
	}
	// The inverse of a line; the loops then correct its rounding error.
	n := int(min(max(s.passes(seconds, float64(limit)), 1), float64(limit)))
	for n > 1 && s.At(float64(n)) > seconds {
		n--
	}
	for n < limit && s.At(float64(n+1)) <= seconds {
		n++
	}
	return n
}

// passes returns the share at which a rising curve reaches a time, or otherwise if the curve does not reach the time.
func (s *Scaled) passes(seconds, otherwise float64) float64 {
	return s.passesAt(s.after(seconds), seconds, otherwise)
}

// passesAt is passes if the first point after seconds is known.
func (s *Scaled) passesAt(i int, seconds, otherwise float64) float64 {
	i = min(max(i, 1), len(s.Points.Curve)-1)
	a, b := s.point(i-1), s.point(i)
	if b.Seconds <= a.Seconds {
		return otherwise
	}
	return a.Samples + (b.Samples-a.Samples)*((seconds-a.Seconds)/(b.Seconds-a.Seconds))
}

// surely is a factor below 1 that changes a time by more than the rounding errors of factors.
const surely = 1 - 1e-9

// unscaled returns the time of a point that the factors change to seconds, except for rounding errors.
func (s *Scaled) unscaled(seconds float64) float64 {
	for _, factor := range s.Factors {
		if factor != 0 {
			seconds /= factor
		}
	}
	return seconds
}

// after returns the index of the first point of a rising curve whose time is above seconds, or the number of points. It
// searches the shared points for a time without the factors, and then corrects the rounding error of the factors.
func (s *Scaled) after(seconds float64) int {
	within, c := s.unscaled(seconds), s.Points.Curve
	low, high := 0, len(c)
	for low < high {
		if middle := (low + high) / 2; c[middle].Seconds > within {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return s.afterFrom(low, seconds)
}

// afterFrom is after. It searches from a point on.
func (s *Scaled) afterFrom(i int, seconds float64) int {
	for i < len(s.Points.Curve) && !(s.seconds(i) > seconds) {
		i++
	}
	for i > 0 && s.seconds(i-1) > seconds {
		i--
	}
	return i
}

// SlowestScaled is [Slowest].
func SlowestScaled(curves []Scaled, shares []int) (seconds float64, rank int) {
	for r := range curves {
		if t := curves[r].At(float64(shares[r])); r == 0 || t > seconds {
			seconds, rank = t, r
		}
	}
	return seconds, rank
}
