package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// within returns the part of a curve between two shares. Where the curve has no point at a share, the part begins or
// ends with the nearest point. It is nil if the curve has no points between the shares.
func within(c divide.Curve, least, most float64) divide.Curve {
	if len(c) == 0 || c[0].Samples > most || c[len(c)-1].Samples < least {
		return nil
	}
	least, most = max(least, c[0].Samples), min(most, c[len(c)-1].Samples)
	out := divide.Curve{{Samples: least, Seconds: c.At(least)}}
	for _, p := range c {
		if p.Samples > least && p.Samples < most {
			out = append(out, p)
		}
	}
	if most > least {
		out = append(out, divide.Point{Samples: most, Seconds: c.At(most)})
	}
	return out
}

// simplify returns the curve with at most the given number of points, at least 2. It first chooses the points with the
// largest relative distance from the line through their chosen neighbours. If all other points lie on these lines, it
// chooses points within the widest ratios of samples. These points show that the curve is a line there.
func simplify(c divide.Curve, points int) divide.Curve {
	if len(c) <= 2 {
		return c
	}
	chosen := []int{0, len(c) - 1}
	for len(chosen) < min(points, len(c)) {
		furthest, widest, at, place := 1e-9, 0.0, -1, 0 // smaller values are rounding errors
		for i, last := range chosen[:len(chosen)-1] {
			next := chosen[i+1]
			for k := last + 1; k < next; k++ {
				on := divide.Between(c[last], c[next], c[k].Samples)
				if far := math.Abs(on-c[k].Seconds) / max(on, c[k].Seconds); far > furthest {
					furthest, at, place = far, k, i+1
				}
			}
		}
		for i, last := range chosen[:len(chosen)-1] {
			next := chosen[i+1]
			for k := last + 1; k < next && furthest == 1e-9; k++ {
				if wide := min(c[k].Samples/c[last].Samples, c[next].Samples/c[k].Samples); wide > widest {
					widest, at, place = wide, k, i+1
				}
			}
		}
		chosen = slices.Insert(chosen, place, at)
	}
	out := make(divide.Curve, len(chosen))
	for i, k := range chosen {
		out[i] = c[k]
	}
	return out
}

// thinError is the largest relative error of a thinned curve. Larger: a decision with many ranks takes less time.
const thinError = 1e-4

// thinned returns the curve without the points that lie on the lines through their neighbours. Each rank of a large
// type has a copy of the curve, and the solvers take a time in proportion to its size.
func thinned(c divide.Curve) divide.Curve {
	out := divide.Curve{c[0]}
	for at := 0; at+1 < len(c); {
		next := at + 1
		for next+1 < len(c) && onLine(c[at:next+2]) {
			next++
		}
		out, at = append(out, c[next]), next
	}
	return out
}

// onLine reports whether all points lie on the line through the first and the last one.
func onLine(c divide.Curve) bool {
	last := c[len(c)-1]
	for _, p := range c[1 : len(c)-1] {
		if math.Abs(divide.Between(c[0], last, p.Samples)-p.Seconds) > thinError*p.Seconds {
			return false
		}
	}
	return true
}
