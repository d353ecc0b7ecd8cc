package estimate

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// settle changes a curve so that it falls before its point i and rises after it. It sets neighbouring points that
// contradict this to their mean time, weighted by the inverse of their variances (the algorithm "pool adjacent
// violators"). A time that is known exactly therefore changes little.
func settle(c divide.Curve, i int, variance func(i int) float64) {
	if slices.IsSortedFunc(c[i:], slower) &&
		slices.IsSortedFunc(c[:i+1], func(a, b divide.Point) int { return slower(b, a) }) {
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
