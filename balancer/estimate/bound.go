package estimate

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// reachable is the fraction of a rank's fastest time per sample that curves may reach. The rest is a margin for the
// noise of the fastest step, and for tiles that other shares fill better. Smaller: shares follow levels that the rank
// never had. Larger: a rank that becomes faster than ever gets its samples later.
const reachable = 0.7

// fastest is the fastest step that a rank has reached, by its time per sample, and the largest share that was measured.
// A level that moves can give other shares a time that the rank never reached: if other programs slow down the rank in
// some windows, its measured shares belong to different levels.
type fastest struct {
	perSample float64 // s; 0: the rank was not measured
	largest   float64 // samples
}

// add takes the times of the steps of a window with one share.
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

// bound returns the curve without times that the rank cannot reach: up to the largest measured share, a time per sample
// far below the fastest one, and with more samples, a shorter time than this share. It returns c itself if c has no
// such times.
func (f *fastest) bound(c divide.Curve) divide.Curve {
	bounded := c
	for i, p := range c {
		least := reachable * f.perSample * min(p.Samples, f.largest)
		if p.Seconds >= least {
			continue
		}
		if &bounded[0] == &c[0] {
			bounded = slices.Clone(c)
		}
		bounded[i].Seconds = least
	}
	return bounded
}
