package estimate

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// reachable times a rank's fastest measured time per sample is the least time per sample of its curve. The rest is a
// margin for the noise of the fastest step, and for tiles that other shares fill better. Smaller: shares follow levels
// that the rank never had. Larger: a rank that becomes faster than ever before gets more samples later.
const reachable = 0.7

// fastest contains the shortest measured time per sample of a rank, and its largest measured share. If other programs
// slow down the rank in some windows, its shares are measured at different levels. The curve can then predict times
// that the rank never reached.
type fastest struct {
	perSample float64 // s; 0: the rank was not measured
	largest   float64 // samples
}

// add updates f with the times of the steps of a window, in which the share is constant.
func (f *fastest) add(samples int, seconds []float64) {
	if samples <= 0 || len(seconds) == 0 {
		return
	}
	b := float64(samples)
	if t := slices.Min(seconds) / b; f.perSample == 0 || t < f.perSample {
		f.perSample = t
	}
	f.largest = max(f.largest, b)
}

// raise raises times of a curve that the rank cannot reach. Up to the largest measured share, these are times per
// sample far below the fastest measured one. Beyond that share, these are times below the time at that share.
func (f *fastest) raise(c *divide.Scaled) { c.PerSample, c.Largest = reachable*f.perSample, f.largest }

// scaled returns a curve with times multiplied by a factor, and then raised.
func (f *fastest) scaled(points *divide.Points, factor float64) divide.Scaled {
	c := divide.Scaled{Points: points, Factors: [3]float64{factor}}
	f.raise(&c)
	return c
}
