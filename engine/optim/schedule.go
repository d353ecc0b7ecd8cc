package optim

import (
	"fmt"
	"math"
	"slices"
)

// Schedule describes the learning rate over the steps of a run: a linear warm-up, then a curve.
type Schedule struct {
	Name       string // curve: "constant", "step", "multistep", "cosine" or "linear"
	Base       float64
	Min        float64 // learning rate at the end; for cosine and linear
	Warmup     int     // number of warm-up steps; step s < Warmup has rate Base·(s+1)/Warmup
	Total      int     // number of steps of the run; above 0 for cosine and linear
	StepSize   int     // for step: the rate is Base·Gamma^(steps done / StepSize, rounded down)
	Gamma      float64
	Milestones []int // for multistep: ascending steps from the start of the run; each multiplies the rate by Gamma
}

// Check returns an error for missing or invalid settings of the curve Name.
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

// Rate returns the learning rate of a step, counted from 0. All curves except multistep start after the warm-up.
//
// Each rank computes the rate, and the results must be bit-equal on all ranks, even if their processors differ. On
// arm64, the compiler fuses a product and a sum unless a conversion rounds between them. math.Cos and math.Pow also
// differ between architectures.
func (s Schedule) Rate(step int) float64 {
	if step < s.Warmup {
		return s.Base * float64(step+1) / float64(s.Warmup)
	}
	switch s.Name {
	case "step":
		return s.Base * power(s.Gamma, (step-s.Warmup)/s.StepSize)
	case "multistep":
		rate := s.Base
		for _, m := range s.Milestones {
			if step >= m {
				rate *= s.Gamma
			}
		}
		return rate
	case "cosine":
		return s.Min + float64((s.Base-s.Min)*halfWave(s.progress(step)))
	case "linear":
		p := s.progress(step)
		return float64(s.Base*(1-p)) + float64(s.Min*p) // exact at both ends
	}
	return s.Base
}

// progress returns the fraction of the curve that is done, 0 to 1.
func (s Schedule) progress(step int) float64 {
	length := s.Total - s.Warmup
	if length <= 0 {
		return 1
	}
	return min(1, float64(step-s.Warmup)/float64(length))
}

// halfWave returns (1 + cos(π·p)) / 2 for 0 ≤ p ≤ 1, exact at both ends.
func halfWave(p float64) float64 {
	if p > 0.5 {
		return 1 - halfWave(1-p)
	}
	square := math.Pi * p
	square *= square
	sum := 1.0
	for n := 22; n > 0; n -= 2 { // Taylor series with a remainder below 1e-19
		sum = 1 - float64(square*sum)/float64(n*(n-1))
	}
	return (1 + sum) / 2
}

// power returns x^n for n ≥ 0, computed only with products.
func power(x float64, n int) float64 {
	product := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			product *= x
		}
		x *= x
	}
	return product
}
