package optim

import (
	"fmt"
	"math"
)

// LossScale is the factor of the loss in types whose small numbers are few: gradients of f16 below 2^-24 would be zero. It is a power of two, so
// that undoing it changes no bit: halved whenever a gradient was not finite, doubled after many steps that all were.
type LossScale struct {
	Scale     float64
	GoodSteps int64 // since it last changed
}

const (
	firstScale  = 1 << 16
	mostScale   = 1 << 24 // beyond it sums in f32 lose more than f16 gains
	growthSteps = 2000
)

// NewLossScale is where a run begins.
func NewLossScale() *LossScale { return &LossScale{Scale: firstScale} }

// Set continues from a checkpoint.
func (l *LossScale) Set(scale float64, goodSteps int64) error {
	if fraction, _ := math.Frexp(scale); fraction != 0.5 || scale < 1 || scale > mostScale || goodSteps < 0 || goodSteps >= growthSteps {
		return fmt.Errorf("loss scale: got %v after %d good steps, want a power of two from 1 to %d after 0 to %d", scale, goodSteps, mostScale, growthSteps-1)
	}
	l.Scale, l.GoodSteps = scale, goodSteps
	return nil
}

// Update takes note of a step, and reports whether the scale was lowered: then the step was skipped for being scaled too far, and the next may be
// fine. A gradient that is not finite without a scale is a fault.
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
