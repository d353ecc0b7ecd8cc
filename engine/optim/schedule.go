package optim

import (
	"fmt"
	"math"
	"slices"
)

// Schedule says how the learning rate changes over the steps of a run: a linear warm-up, then a curve.
type Schedule struct {
	Name       string // constant, step, multistep, cosine, linear
	Base       float64
	Min        float64 // cosine, linear: the rate at the end
	Warmup     int     // steps; step s < Warmup has Base·(s+1)/Warmup
	Total      int     // steps of the run, > 0 for cosine and linear
	StepSize   int     // step: Base·Gamma^(number of whole StepSize passed)
	Gamma      float64
	Milestones []int // multistep, ascending, in steps from the start of the run, warm-up included: times Gamma at each
}

// Check reports what is missing or wrong for the named curve.
func (s Schedule) Check() error {
	if s.Warmup < 0 {
		return fmt.Errorf("schedule %s: warm-up: got %d steps, want at least 0", s.Name, s.Warmup)
	}
	if s.Name == "multistep" && !slices.IsSorted(s.Milestones) {
		return fmt.Errorf("schedule multistep: milestones: got %v, want ascending steps", s.Milestones)
	}
	switch s.Name {
	case "constant", "multistep":
	case "step":
		if s.StepSize < 1 {
			return fmt.Errorf("schedule step: step size: got %d steps, want at least 1", s.StepSize)
		}
	case "cosine", "linear":
		if s.Total < 1 {
			return fmt.Errorf("schedule %s: total: got %d steps, want at least 1", s.Name, s.Total)
		}
	default:
		return fmt.Errorf("unknown schedule %q, want constant, step, multistep, cosine or linear", s.Name)
	}
	return nil
}

// Rate is the learning rate of step, counted from 0. Curves other than multistep begin when the warm-up is over.
func (s Schedule) Rate(step int) float64 {
	if step < s.Warmup {
		return s.Base * float64(step+1) / float64(s.Warmup)
	}
	switch s.Name {
	case "step":
		return s.Base * math.Pow(s.Gamma, float64((step-s.Warmup)/s.StepSize))
	case "multistep":
		rate := s.Base
		for _, m := range s.Milestones {
			if step >= m {
				rate *= s.Gamma
			}
		}
		return rate
	case "cosine":
		return s.Min + (s.Base-s.Min)*(1+math.Cos(math.Pi*s.progress(step)))/2
	case "linear":
		p := s.progress(step)
		return s.Base*(1-p) + s.Min*p // exact at both ends
	}
	return s.Base
}

// progress is the share of the curve that has passed, 0…1.
func (s Schedule) progress(step int) float64 {
	length := s.Total - s.Warmup
	if length <= 0 {
		return 1
	}
	return min(1, float64(step-s.Warmup)/float64(length))
}
