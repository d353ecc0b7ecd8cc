package analysis

import (
	"math"
	"slices"
)

// CurvePoint is the mean loss of a block of steps, at the end of the block.
type CurvePoint struct {
	Step    int64
	Seconds float64 // time since the start of training
	Loss    float64 // mean loss of the block
}

// curve returns the loss curve of a run, including the warm-up, with one point per block of steps.
func (r *Run) curve() []CurvePoint {
	var points []CurvePoint
	for part := range slices.Chunk(r.Steps, blockSteps) {
		sum, n := 0.0, 0.0
		for _, step := range part {
			if !math.IsNaN(step.Loss) {
				sum, n = sum+step.Loss, n+1
			}
		}
		if last := part[len(part)-1]; n > 0 && (len(part) == blockSteps || len(points) == 0) {
			points = append(points, CurvePoint{last.Iteration, last.Elapsed, sum / n})
		}
	}
	return points
}

// converge sets the results that depend on losses.
func (c *Comparison) converge() {
	c.TargetLoss, c.LossSpread = math.Inf(-1), unknown
	for _, p := range c.Policies {
		for _, run := range p.Runs {
			lowest := math.Inf(1)
			for _, point := range run.curve() {
				lowest = min(lowest, point.Loss)
			}
			c.TargetLoss = max(c.TargetLoss, lowest)
		}
	}
	if math.IsInf(c.TargetLoss, 0) {
		c.TargetLoss = unknown
		return
	}
	for _, p := range c.Policies {
		var curves [][]CurvePoint
		for _, run := range p.Runs {
			points := run.curve()
			curves = append(curves, points)
			at := slices.IndexFunc(points, func(point CurvePoint) bool { return point.Loss <= c.TargetLoss })
			p.SecondsTo = append(p.SecondsTo, points[at].Seconds)
			p.StepsTo = append(p.StepsTo, points[at].Step)
		}
		p.Curve = meanCurve(curves)
	}
	c.LossSpread = c.lossSpread()
}

// meanCurve returns the mean of several curves, up to the end of the shortest one.
func meanCurve(curves [][]CurvePoint) []CurvePoint {
	length := len(curves[0])
	for _, points := range curves {
		length = min(length, len(points))
	}
	out := make([]CurvePoint, length)
	for i := range out {
		for _, points := range curves {
			out[i].Step = points[i].Step
			out[i].Seconds += points[i].Seconds / float64(len(curves))
			out[i].Loss += points[i].Loss / float64(len(curves))
		}
	}
	return out
}

// lossSpread returns the largest difference between the loss curves of two policies with the same seed, as a fraction
// of the first loss.
func (c *Comparison) lossSpread() float64 {
	spread := unknown
	for _, p := range c.Policies[1:] {
		for _, run := range p.Runs {
			for _, base := range c.Policies[0].Runs {
				if base.Seed == run.Seed {
					spread = larger(spread, curveDistance(base.curve(), run.curve()))
				}
			}
		}
	}
	return spread
}

func curveDistance(base, other []CurvePoint) float64 {
	distance := unknown
	for _, point := range other {
		if i := slices.IndexFunc(base, func(b CurvePoint) bool { return b.Step == point.Step }); i >= 0 {
			distance = larger(distance, math.Abs(point.Loss-base[i].Loss)/math.Abs(base[0].Loss))
		}
	}
	return distance
}

// larger returns the maximum of a and b and ignores NaN.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}
