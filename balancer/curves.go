package balancer

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// settle changes a curve so that it falls before its point i and rises after it. Neighbouring points that contradict this
// get their mean time, weighted by the inverse of their variances (the algorithm "pool adjacent violators"). A time that
// is known exactly therefore changes little.
func settle(c divide.Curve, i int, variance func(i int) float64) {
	if slices.IsSortedFunc(c[i:], slower) && slices.IsSortedFunc(c[:i+1], func(a, b divide.Point) int { return slower(b, a) }) {
		return
	}
	settleSide(c, i, len(c), 1, variance)
	settleSide(c, i, -1, -1, variance)
}

func slower(a, b divide.Point) int { return cmp.Compare(a.Seconds, b.Seconds) }

// settleSide changes the points from first until end, in steps of 1 or -1, so that their times rise.
func settleSide(c divide.Curve, first, end, step int, variance func(i int) float64) {
	type block struct {
		seconds, weight float64
		points          int
	}
	var blocks []block
	for i := first; i != end; i += step {
		b := block{c[i].Seconds, 1 / max(variance(i), leastVariance), 1}
		for n := len(blocks) - 1; n >= 0 && blocks[n].seconds > b.seconds; n-- {
			last := blocks[n]
			blocks = blocks[:n]
			b.seconds += (last.seconds - b.seconds) * (last.weight / (last.weight + b.weight))
			b.weight, b.points = b.weight+last.weight, b.points+last.points
		}
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		for range b.points {
			c[first].Seconds = b.seconds
			first += step
		}
	}
}

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
// chooses points within the widest ratios of samples, because it is also information that the curve is a line there.
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

// times returns the curve with its times multiplied by a factor.
func times(c divide.Curve, factor float64) divide.Curve {
	out := slices.Clone(c)
	for i := range out {
		out[i].Seconds = min(out[i].Seconds*factor, divide.MostSeconds)
	}
	return out
}

// onto is [Curve.At] for a share whose next point is known: the first point that is at least the share.
func onto(c divide.Curve, next int, samples float64) float64 {
	if next == 0 || len(c) == 1 {
		return c[0].Seconds
	}
	return divide.Between(c[next-1], c[next], samples)
}
