package optim

import (
	"fmt"
	"math"
)

// LossScale is the factor of the loss for compute types with a small range, such as f16: without a factor, gradients
// below 2^-24 would become 0. The factor is a power of two, so unscaling is exact. It is halved after each gradient
// that is not finite, and doubled after many steps with finite gradients.
type LossScale struct {
	Scale     float64
	GoodSteps int64 // number of steps since the last change
}

const (
	firstScale  = 1 << 16
	mostScale   = 1 << 24 // with a larger scale, the loss of precision in f32 sums exceeds the gain in f16
	growthSteps = 2000
)

// NewLossScale returns the initial loss scale of a run.
func NewLossScale() *LossScale { return &LossScale{Scale: firstScale} }

// Set restores the loss scale from a checkpoint.
func (l *LossScale) Set(scale float64, goodSteps int64) error {
	if fraction, _ := math.Frexp(scale); fraction != 0.5 || scale < 1 || scale > mostScale || goodSteps < 0 ||
		goodSteps >= growthSteps {
		return fmt.Errorf("loss scale: got %v after %d good steps, want a power of two from 1 to %d after 0 to %d",
			scale, goodSteps, mostScale, growthSteps-1)
	}
	l.Scale, l.GoodSteps = scale, goodSteps
	return nil
}

// Update records a step. finite states whether the gradient was finite. lowered reports that the step was skipped
// because the scale was too large; the scale is now lower, so the next step may succeed. At scale 1, Update returns
// false for a gradient that is not finite: the scale is not the cause.
func (l *LossScale) Update(finite bool) (lowered bool) {
	switch {
	case !finite && l.Scale > 1:
		l.Scale, l.GoodSteps = l.Scale/2, 0
		return true
	case !finite:
		l.GoodSteps = 0
	default:
		if l.GoodSteps++; l.GoodSteps == growthSteps {
			l.Scale, l.GoodSteps = min(2*l.Scale, mostScale), 0
		}
	}
	return false
}
