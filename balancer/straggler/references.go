package straggler

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// References keeps the curve of each rank from the time when the rank was healthy. A policy must reduce the share of a
// sick rank, so its curves follow the rank's times within one or two windows. They then predict the slow times, and the
// rank would seem healthy.
//
//	o.Expected, o.ExpectedError = refs.Expect(rank, share) // for each rank, before
//	verdicts, err := detector.Observe(step, observations)
//	refs.Keep(detector, shares, curves, views)             // after every window
//
// References cannot detect a rank that becomes slower so gradually that no window is an outlier.
type References struct {
	ranks []reference
}

type reference struct {
	curve  divide.Curve
	err    float64 // relative standard error at share
	shares []int   // recent shares at which the rank was healthy
}

const (
	referenceShares = 32
	// strayError is the relative standard error of a curve at e = 2.718 times a measured share, because the fixed part
	// of a step may be wrong.
	strayError = 0.2
)

// NewReferences returns References without curves.
func NewReferences(ranks int) *References { return &References{ranks: make([]reference, ranks)} }

// Expect returns the time of a share on the rank's healthy curve and its standard error, in s; NaN: there is no curve
// yet.
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

// Keep stores the curves of ranks that were healthy in the last window, with their shares and the views of the policy.
func (r *References) Keep(d *Detector, shares []int, curves []divide.Curve, views []balancer.RankView) {
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
