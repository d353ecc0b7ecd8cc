package divide

import "math"

// class is what ranks have in common whose curves have the same points.
type class struct {
	fastest float64 // smallest factor of these ranks
	most    int     // largest limit of these ranks, units
	// by point: the lowest time per sample up to this point, s
	perSample []float64
	highest   float64   // of the times of the points, s
	base      []float64 // time by units, from one unit on, s
	tolerance float64   // relative error of base times a factor; 0: unknown, so the class is not used
}

// mostOwn is the fraction of the ranks that may have times of their own, and mostClasses the number of classes. With
// more, times from classes do not save time.
const mostOwn, mostClasses = 0.5, 1024

// classes are the classes of ranks that share points. A rank without a class has times of its own.
type classes struct {
	list    []class
	of      []int32   // by rank; -1: none
	factors []float64 // by rank
	units             // the fewest units of a rank may be more, with times of at most least
	least   float64   // s; 0: no rank has more
}

// classes returns false if few ranks share points. It may leave out units whose times are at most least.
func (u units) classes(curves []Scaled, least float64) (c classes, ok bool) {
	numbers := map[*Points]int32{}
	c.units = u
	c.of, c.factors = make([]int32, len(curves)), make([]float64, len(curves))
	// raise leaves out the units of a rank whose times are surely at most least, and returns the fewest units.
	raise := func(r int) int {
		if !(least > 0) { // units that take no time count, too
			return u.fewest(r)
		}
		few := min(curves[r].allWithin(least)/u.size, u.limit[r])
		if few <= u.fewest(r) || r == u.last {
			return u.fewest(r)
		}
		if c.least == 0 {
			c.least, c.floor = least, make([]int, len(curves))
			for i := range c.floor {
				c.floor[i] = u.fewest(i)
			}
		}
		c.floor[r] = few
		return few
	}
	own := 0
	for r := range curves {
		s := &curves[r]
		c.of[r] = -1
		if u.limit[r] == 0 {
			continue
		}
		at, known := numbers[s.Points]
		if shared := s.Points.first != nil; !known && shared && len(c.list) < mostClasses {
			at, known = int32(len(c.list)), true
			numbers[s.Points], c.list = at, append(c.list, s.class())
		}
		if !known || r == u.last && u.rest > 0 || float64(u.samples(r, u.limit[r])) > s.Points.end() {
			own++ // beyond the last point, rounding errors grow
			raise(r)
			continue
		}
		class := &c.list[at]
		factor, regular := s.regular(class)
		if !regular || s.PerSample != 0 && !s.isFree(factor, class) &&
			!s.isFreeFrom(float64(u.samples(r, raise(r))), factor) {
			own++
			continue
		}
		c.of[r], c.factors[r] = at, factor
		class.fastest, class.most = min(class.fastest, factor), max(class.most, u.limit[r])
	}
	return c, float64(own) <= mostOwn*float64(len(curves))
}

// end returns the largest share of the points.
func (p *Points) end() float64 { return p.Curve[len(p.Curve)-1].Samples }

// class returns the class of the points.
func (p *Points) class() class {
	c := class{fastest: math.Inf(1), perSample: make([]float64, len(p.Curve))}
	lowest, steepest := math.Inf(1), 1.0
	for i, at := range p.Curve {
		lowest = min(lowest, at.Seconds/at.Samples)
		c.perSample[i] = lowest
		c.highest = max(c.highest, at.Seconds)
		if i > 0 {
			before := p.Curve[i-1].Seconds
			steepest = max(steepest, at.Seconds/before, before/at.Seconds)
		}
	}
	// The time between two points has the rounding error of the longer one.
	const exact, most = 1e-13, 1e-7
	if tolerance := exact * steepest; p.valid && tolerance < most && c.highest > 1/MostSeconds {
		c.tolerance = tolerance
	}
	return c
}

// regular returns the product of the factors, and whether all times without a least time are those of the points times
// this factor: no time is limited to MostSeconds.
func (s *Scaled) regular(c *class) (factor float64, ok bool) {
	const most = 1 << 20
	factor, longest := 1.0, c.highest
	for _, f := range s.Factors {
		if f == 0 {
			break
		}
		factor *= f
		longest *= max(f, 1)
	}
	return factor, c.tolerance > 0 && factor > 1./most && factor < most && longest < MostSeconds
}

// isFree reports whether no least time is longer than the times of the points times a factor.
func (s *Scaled) isFree(factor float64, c *class) bool {
	at := min(s.next(s.Largest), len(c.perSample)-1)
	return s.Largest > 0 && s.PerSample <= factor*c.perSample[at]*surely &&
		s.PerSample*s.Largest <= factor*s.lowestFrom()[at]*surely
}

// isFreeFrom is isFree for a share and all larger ones. Their times follow from the point before the share on.
func (s *Scaled) isFreeFrom(samples, factor float64) bool {
	points := s.Points.Curve
	at := min(s.next(samples), len(points)-1)
	for i := max(at-1, 0); i < len(points); i++ {
		if !(s.PerSample*min(points[i].Samples, s.Largest) <= factor*points[i].Seconds*surely) {
			return false
		}
		if points[i].Samples >= s.Largest {
			return s.PerSample*s.Largest <= factor*s.lowestFrom()[i]*surely
		}
	}
	return true
}

// times returns the times of each rank up to the most units that it may finish within seconds, and their relative
// error.
func (c *classes) times(curves []Scaled, seconds float64) (list []times, tolerance float64) {
	u := c.units
	for i := range c.list {
		class := &c.list[i]
		if class.base = nil; !math.IsInf(class.fastest, 1) {
			tolerance = max(tolerance, class.tolerance)
		}
	}
	one := u // a rank of a class that may have the most units
	one.last, one.rest, one.floor = -1, 0, nil
	list = make([]times, len(curves))
	room := memory{ranks: len(curves)}
	for r := range curves {
		if u.limit[r] == 0 {
			continue
		}
		few, at := u.fewest(r), c.of[r]
		if at < 0 {
			own := room.take(r, max(u.upTo(r, &curves[r], seconds), few)-few+1)
			u.timesOf(r, &curves[r], own)
			list[r] = times{own, 1, true}
			continue
		}
		class := &c.list[at]
		if class.base == nil {
			s := Scaled{Points: curves[r].Points}
			one.limit = []int{class.most}
			class.base = make([]float64, one.upTo(0, &s, seconds/class.fastest*(1+tolerance)))
			one.timesOf(0, &s, class.base)
		}
		if len(class.base) < few { // a rank that takes longer for its fewest units
			own := []float64{curves[r].At(float64(u.samples(r, few)))}
			list[r] = times{own, 1, true}
			continue
		}
		list[r] = times{class.base[few-1 : min(u.limit[r], len(class.base))], c.factors[r], false}
	}
	return list, tolerance
}
