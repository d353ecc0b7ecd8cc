package divide

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A rank may take longer for few samples than for more, because libraries choose other kernels for few samples. Such a
// curve falls to a minimum (its valley), and rises beyond it.

// valley returns the index of the lowest point, or of the first one of several.
func (c Curve) valley() (lowest int) {
	for i, p := range c {
		if p.Seconds < c[lowest].Seconds {
			lowest = i
		}
	}
	return lowest
}

// ascent returns the part of a curve from its valley on.
func (c Curve) ascent() Curve { return c[c.valley():] }

// turnsOnce reports whether a curve only falls before its valley and only rises after it.
func (c Curve) turnsOnce() bool {
	lowest := c.valley()
	return c[lowest:].Rises() && slices.IsSortedFunc(c[:min(lowest+1, len(c))], func(a, b Point) int {
		return cmp.Compare(b.Seconds, a.Seconds)
	})
}

// smoothed returns the lowest curve that turns once and is nowhere below this curve.
func (c Curve) smoothed() Curve {
	if c.turnsOnce() {
		return c
	}
	lowest := c.valley()
	fall := c[:lowest+1].mirrored().rising().mirrored()
	return append(fall, c[lowest:].rising()[1:]...)
}

// mirrored returns the curve mirrored at 0 samples.
func (c Curve) mirrored() Curve {
	out := make(Curve, len(c))
	for i, p := range c {
		out[len(c)-1-i] = Point{-p.Samples, p.Seconds}
	}
	return out
}

// valleys contains curves with a single minimum, each divided at its minimum.
type valleys struct {
	units
	curves []Curve
	rising []Scaled // the parts of the curves from their valleys on
	lowest []int    // units in the valley, by rank
}

func (u units) valleys(curves []Curve) valleys {
	v := valleys{units: u, curves: curves, lowest: make([]int, len(curves))}
	ascents := make([]Curve, len(curves))
	for r, c := range curves {
		ascents[r], v.lowest[r] = c.ascent(), u.fewest(r)
		if u.limit[r] == 0 || len(ascents[r]) == len(c) {
			continue
		}
		below := int(ascents[r][0].Samples)
		if r == u.last {
			below -= u.rest
		}
		below = min(max(below/u.size, u.fewest(r)), u.limit[r])
		if v.lowest[r] = below; below < u.limit[r] && v.seconds(r, below+1) < v.seconds(r, below) {
			v.lowest[r]++
		}
	}
	v.rising = Plain(ascents)
	return v
}

// seconds returns the time of a rank for n units.
func (v *valleys) seconds(rank, n int) float64 { return v.curves[rank].At(float64(v.samples(rank, n))) }

// least returns a new list and its sum. The list contains the smallest number of units that each rank can finish within
// a time, or the units of its valley if it cannot finish any.
func (v *valleys) least(seconds float64) (units []int, sum int) {
	units = make([]int, len(v.curves))
	for r := range units {
		if v.limit[r] > 0 {
			few := v.fewest(r)
			units[r] = few + sort.Search(v.lowest[r]-few, func(i int) bool { return v.seconds(r, few+i) <= seconds })
			sum += units[r]
		}
	}
	return units, sum
}

// Within a time, each rank can finish a smallest and a largest number of units. solve finds the shortest time in which
// the largest numbers sum to at least the total, and the smallest numbers to at most the total.
func (v *valleys) solve() []int {
	filled := v.units.fill(v.rising)
	seconds, _ := SlowestScaled(v.rising, v.shares(filled))
	highest := seconds
	for r, n := range v.lowest {
		if v.limit[r] > 0 {
			seconds, highest = max(seconds, v.seconds(r, n)), max(highest, v.seconds(r, v.fewest(r)))
		}
	}
	floors, sum := v.least(seconds)
	if sum > v.total {
		low, high := math.Float64bits(seconds), math.Float64bits(highest)
		for low+1 < high {
			mid := low + (high-low)/2
			if _, sum := v.least(math.Float64frombits(mid)); sum > v.total {
				low = mid
			} else {
				high = mid
			}
		}
		floors, _ = v.least(math.Float64frombits(high))
	}
	u, same := v.units, true
	for r := range floors {
		same = same && (u.limit[r] == 0 || floors[r] == u.fewest(r))
	}
	if same {
		return filled
	}
	u.floor = floors
	return u.fill(v.rising)
}
