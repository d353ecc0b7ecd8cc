package optim

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The expected rates are those of PyTorch's schedulers, computed by hand. The first step is step 0.
func TestRatesAreThoseOfTheCurve(t *testing.T) {
	quarter := (1 + math.Sqrt2/2) / 2 // (1 + cos(π/4)) / 2
	for _, c := range []struct {
		name     string
		schedule Schedule
		want     []float64
	}{
		{"constant", Schedule{Name: "constant", Base: 0.1}, []float64{0.1, 0.1, 0.1}},
		{"constant after a warm-up: the first step is not 0, the last of the warm-up is the base",
			Schedule{Name: "constant", Base: 1, Warmup: 4},
			[]float64{0.25, 0.5, 0.75, 1, 1, 1}},
		{"a warm-up of one step is none", Schedule{Name: "constant", Base: 1, Warmup: 1}, []float64{1, 1}},
		{"step (StepLR)", Schedule{Name: "step", Base: 1, StepSize: 3, Gamma: 0.5},
			[]float64{1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25}},
		{"step counts from the end of the warm-up", Schedule{Name: "step", Base: 1, StepSize: 2, Gamma: 0.1, Warmup: 2},
			[]float64{0.5, 1, 1, 1, 0.1, 0.1, 0.01}},
		{"multistep (MultiStepLR)", Schedule{Name: "multistep", Base: 1, Milestones: []int{2, 5}, Gamma: 0.1},
			[]float64{1, 1, 0.1, 0.1, 0.1, 0.01, 0.01}},
		{"multistep counts from the start", Schedule{Name: "multistep", Base: 1, Milestones: []int{1, 4}, Gamma: 0.5,
			Warmup: 2}, []float64{0.5, 1, 0.5, 0.5, 0.25}},
		{"multistep of one place twice", Schedule{Name: "multistep", Base: 1, Milestones: []int{1, 1}, Gamma: 0.5},
			[]float64{1, 0.25}},
		{"multistep without milestones", Schedule{Name: "multistep", Base: 1, Gamma: 0.1}, []float64{1, 1}},
		{"cosine (CosineAnnealingLR) stays at its end", Schedule{Name: "cosine", Base: 1, Total: 4},
			[]float64{1, quarter, 0.5, 1 - quarter, 0, 0, 0}},
		{"cosine to a minimum", Schedule{Name: "cosine", Base: 1, Min: 0.1, Total: 5},
			[]float64{1, 0.9140576474687263, 0.6890576474687263, 0.41094235253127365, 0.1859423525312737, 0.1}},
		{"cosine begins when the warm-up is over", Schedule{Name: "cosine", Base: 2, Warmup: 2, Total: 6},
			[]float64{1, 2, 2, 2 * quarter, 1, 2 - 2*quarter, 0}},
		{"linear (LinearLR)", Schedule{Name: "linear", Base: 1, Total: 5}, []float64{1, 0.8, 0.6, 0.4, 0.2, 0, 0}},
		{"linear after a warm-up, to a minimum", Schedule{Name: "linear", Base: 1, Min: 0.5, Warmup: 1, Total: 3},
			[]float64{1, 1, 0.75, 0.5, 0.5}},
		{"linear upwards", Schedule{Name: "linear", Base: 1, Min: 2, Total: 2}, []float64{1, 1.5, 2}},
		{"a warm-up as long as the run", Schedule{Name: "cosine", Base: 1, Warmup: 2, Total: 2}, []float64{0.5, 1, 0}},
		{"a warm-up longer than the run", Schedule{Name: "cosine", Base: 1, Warmup: 4, Total: 2},
			[]float64{0.25, 0.5, 0.75, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.schedule.Check(); err != nil {
				t.Fatal(err)
			}
			for step, want := range c.want {
				if got := c.schedule.Rate(step); math.Abs(got-want) > 1e-15*c.schedule.Base {
					// the tolerance is one or two roundings in f64
					t.Errorf("step %d: got %.17g, want %.17g", step, got, want)
				}
			}
		})
	}
}

// The expected values come from a Python program that performs the same operations in f64. A fused multiply-add would
// change the last bit. So would the cosine or the power of another library.
func TestRatesHaveTheSameBitsOnEveryMachine(t *testing.T) {
	for name, want := range map[string]map[int]float64{
		"cosine": {6: 0x1.997b5740a965bp-4, 36: 0x1.32380507b4d10p-4, 61: 0x1.15e6a67a426c6p-5,
			92: 0x1.c2d2ba91198bep-10},
		"linear": {9: 0x1.87f82a074d336p-4, 36: 0x1.10f678ebc9816p-4, 61: 0x1.458aff32d804fp-5,
			96: 0x1.101deb29f0826p-9},
		"step": {8: 0x1.70a3d70a3d70bp-4, 36: 0x1.1da32b368f315p-5, 61: 0x1.ebd4817ecadd0p-7,
			96: 0x1.15d08fd7d96c5p-8},
	} {
		s := Schedule{Name: name, Base: 0.1, Min: 0.001, Warmup: 5, Total: 97, StepSize: 3, Gamma: 0.9}
		for step, rate := range want {
			if got := s.Rate(step); got != rate {
				t.Errorf("%s, step %d: got %x, want %x", name, step, got, rate)
			}
		}
	}
}

func TestSchedulesThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		schedule Schedule
		want     string
	}{
		{Schedule{}, `unknown schedule ""`},
		{Schedule{Name: "Cosine", Total: 3},
			`unknown schedule "Cosine", want constant, step, multistep, cosine or linear`},
		{Schedule{Name: "step", Gamma: 0.1}, "step size: got 0 steps, want at least 1"},
		{Schedule{Name: "cosine"}, "schedule cosine: total: got 0 steps, want at least 1"},
		{Schedule{Name: "linear", Total: -1}, "schedule linear: total: got -1 steps, want at least 1"},
		{Schedule{Name: "constant", Warmup: -2}, "warm-up: got -2 steps, want at least 0"},
		{Schedule{Name: "multistep", Milestones: []int{5, 2}}, "milestones: got [5 2], want ascending"},
	} {
		if err := c.schedule.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.schedule, err, c.want)
		}
	}
}

func TestRatesStayBetweenTheirEndsAndDoNotRiseAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{
			Name:     rapid.SampledFrom([]string{"constant", "step", "cosine", "linear", "multistep"}).Draw(t, "name"),
			Base:     rapid.Float64Range(1e-6, 10).Draw(t, "base"),
			Warmup:   rapid.IntRange(0, 20).Draw(t, "warm-up"),
			Total:    rapid.IntRange(1, 60).Draw(t, "total"),
			StepSize: rapid.IntRange(1, 20).Draw(t, "step size"),
			Gamma:    rapid.Float64Range(0.01, 1).Draw(t, "gamma"),
		}
		s.Min = s.Base * rapid.Float64Range(0, 1).Draw(t, "minimum/base")
		last, ulp := math.Inf(1), 4e-16*s.Base
		for step := range 100 {
			rate := s.Rate(step)
			lowest := 0.0
			if s.Name == "cosine" || s.Name == "linear" {
				lowest = s.Min
			}
			if !(rate >= 0) || rate > s.Base+ulp || step >= s.Warmup && rate < lowest-ulp {
				t.Fatalf("%+v: step %d: got %g, want at most the base and at least the minimum", s, step, rate)
			}
			if step < s.Warmup && rate != s.Base*float64(step+1)/float64(s.Warmup) {
				t.Fatalf("%+v: step %d of the warm-up: got %g", s, step, rate)
			}
			if step > s.Warmup && rate > last+ulp {
				t.Fatalf("%+v: step %d: got %g after %g", s, step, rate, last)
			}
			if last = rate; step == s.Total && step >= s.Warmup && lowest > 0 && rate != s.Min {
				t.Fatalf("%+v: at the end: got %g, want the minimum", s, rate)
			}
		}
	})
}
