package balancer

import (
	"math"
	"slices"
)

// References keeps each rank's curve as it was while the rank was healthy. A policy's own curves follow a rank that
// falls sick within a window or two, as they must for its share to follow, and then say that it is as fast as expected.
//
//	o.Expected, o.ExpectedError = refs.Expect(rank, share) // for each rank, before
//	verdicts, err := detector.Observe(step, observations)
//	refs.Keep(detector, shares, curves, views)             // after every window
//
// What they cannot see is a rank that becomes slower so slowly that no window stands out.
type References struct {
	ranks []reference
}

type reference struct {
	curve  Curve
	err    float64 // relative standard error, at the share that it is for
	shares []int   // at which the rank was healthy of late
}

const (
	referenceShares = 32
	// strayError is the relative standard error of a curve at e times a share that was measured: what a step's fixed
	// part can be wrong by.
	strayError = 0.2
)

// NewReferences knows no curves.
func NewReferences(ranks int) *References { return &References{ranks: make([]reference, ranks)} }

// Expect is the time of a share on the rank's healthy curve and its standard error, in seconds; NaN: there is none yet.
func (r *References) Expect(rank, share int) (seconds, standardError float64) {
	ref := &r.ranks[rank]
	if share <= 0 || len(ref.curve) == 0 {
		return math.NaN(), math.NaN()
	}
	away := math.Inf(1)
	for _, s := range ref.shares {
		away = min(away, math.Abs(math.Log(float64(share)/float64(s))))
	}
	seconds = ref.curve.At(float64(share))
	return seconds, seconds * math.Hypot(ref.err, strayError*away)
}

// Keep takes the curves over of ranks that were healthy in the last window, with the shares that they had and what the
// policy said of them.
func (r *References) Keep(d *Detector, shares []int, curves []Curve, views []RankView) {
	for i := range r.ranks {
		ref, view := &r.ranks[i], &views[i]
		if !d.Learns(i) || shares[i] <= 0 || len(curves[i]) == 0 || !measured(view.Fitted) || !(view.Error >= 0) {
			continue
		}
		ref.curve, ref.err = append(ref.curve[:0], curves[i]...), view.Error/view.Fitted
		if slices.Contains(ref.shares, shares[i]) {
			continue
		}
		if len(ref.shares) == referenceShares {
			ref.shares = slices.Delete(ref.shares, 0, 1)
		}
		ref.shares = append(ref.shares, shares[i])
	}
}
