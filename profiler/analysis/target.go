package analysis

import (
	"math"
	"slices"
)

// Target is the lowest loss that all runs reach. A comparison measures the time of each run to this loss.
type Target struct {
	Curve string `json:"curve"` // key of the curve: loss, or eval_loss if a run has no training loss
	Loss  Number `json:"loss"`
}

// lossWindow is the number of points of a training loss that are averaged, because the loss of a step varies by chance.
const lossWindow = 20

// setTarget finds the target of the runs, and sets each run's TimeToLoss. If no loss is reached by all runs, there is
// no target. setTarget ignores runs that diverged, because otherwise the loss of such a run would be the target.
func (s *SideBySide) setTarget() {
	for _, key := range []string{lossCurve, evalPrefix + "loss"} {
		points, lowest := make([][]TrialPoint, len(s.Trials)), math.Inf(-1)
		for i, t := range s.Trials {
			if t.diverged {
				continue
			}
			if c := t.curve(key); c != nil {
				points[i] = smoothed(c)
			}
			lowest = max(lowest, leastValue(points[i]))
		}
		if math.IsInf(lowest, 0) {
			continue
		}
		loss := Number(ceil(lowest, 3))
		s.Target = &Target{key, loss}
		for i, t := range s.Trials {
			if t.diverged {
				continue
			}
			reached := slices.IndexFunc(points[i], func(p TrialPoint) bool { return p.Value <= loss })
			t.TimeToLoss = points[i][reached].Seconds
		}
		return
	}
}

// leastValue returns the least value of the points, or +Inf without points.
func leastValue(points []TrialPoint) float64 {
	least := math.Inf(1)
	for _, p := range points {
		least = min(least, float64(p.Value))
	}
	return least
}

// smoothed returns the points of a curve. Points of the training loss are means over lossWindow points, or over all
// points of a shorter curve.
func smoothed(c *Curve) []TrialPoint {
	if c.Key != lossCurve {
		return c.Points
	}
	n := min(lossWindow, len(c.Points))
	var means []TrialPoint
	for i := n; i <= len(c.Points) && n > 0; i++ {
		sum := 0.0
		for _, p := range c.Points[i-n : i] {
			sum += float64(p.Value)
		}
		last := c.Points[i-1]
		means = append(means, TrialPoint{last.Step, last.Seconds, Number(sum / float64(n))})
	}
	return means
}

// ceil rounds up to a number of significant digits, so that a run that reaches v also reaches the rounded number.
func ceil(v float64, digits int) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-float64(digits-1))
	return max(v, math.Ceil(v/unit)*unit)
}
