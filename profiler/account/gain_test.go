package account

import (
	"math"
	"testing"
)

func TestOutcomesOfChanges(t *testing.T) {
	equal, best, worst := []int{8, 8}, []int{12, 4}, []int{4, 12}
	type decision struct {
		step, noise   float64
		spread        float64 // standard error of the step time, as a fraction of it
		shares, next  []int
		predicted     float64
		outcome       bool
		promised, got float64
		worse         bool
	}
	for name, decisions := range map[string][]decision{
		"as predicted": {{step: 1.2, shares: equal, next: best, predicted: 1},
			{step: 1, shares: best, next: best, outcome: true, promised: 1.2, got: 1.2}, {step: 9, shares: best,
				next: best}},
		"noise of each window": {{step: 1.3, noise: 0.1, shares: equal, next: best, predicted: 1.1},
			{step: 1.5, noise: 0.5, shares: best, next: best, outcome: true, promised: 1.2, got: 1.2}},
		"worse": {{step: 1, shares: best, next: worst, predicted: 0.9},
			{step: 2, shares: worst, next: equal, outcome: true, promised: 1 / 0.9, got: 0.5, worse: true}},
		"a little worse without noise": {{step: 1, shares: best, next: worst, predicted: 0.9},
			{step: 1.005, shares: worst, next: worst, outcome: true, promised: 1 / 0.9, got: 1 / 1.005}},
		"worse within the spread": {{step: 1, spread: 0.05, shares: best, next: worst, predicted: 0.9},
			{step: 1.1, spread: 0.05, shares: worst, next: worst, outcome: true, promised: 1 / 0.9, got: 1 / 1.1}},
		"worse beyond the spread": {{step: 1, spread: 0.01, shares: best, next: worst, predicted: 0.9},
			{step: 1.1, spread: 0.01, shares: worst, next: worst, outcome: true, promised: 1 / 0.9, got: 1 / 1.1,
				worse: true}},
		"worse within what windows differ by": {{step: 1, shares: best, next: best},
			{step: 1.2, shares: best, next: best}, {step: 1, shares: best, next: worst, predicted: 0.9}, {step: 1.1,
				shares: worst, next: worst, outcome: true, promised: 1 / 0.9, got: 1 / 1.1}},
		"slower, as predicted within the spread": {{step: 1, spread: 0.02, shares: best, next: worst, predicted: 1.25},
			{step: 1.3, spread: 0.02, shares: worst, next: worst, outcome: true, promised: 0.8, got: 1 / 1.3}},
		"a probe that costs": {{step: 1, shares: best, next: equal, predicted: 1.25},
			{step: 1.25, shares: equal, next: best, outcome: true, promised: 0.8, got: 0.8}},
		"a change without curves": {{step: 1, shares: best, next: worst, predicted: math.NaN()},
			{step: 2, shares: worst, next: worst, outcome: true, promised: math.NaN(), got: 0.5, worse: true}},
		"a change that comes late": {{step: 1.2, shares: equal, next: best, predicted: 1},
			{step: 1.2, shares: equal, next: equal}, {step: 1, shares: best, next: best, outcome: true, promised: 1.2,
				got: 1.2}},
		"a window without a time": {{step: 1.2, shares: equal, next: best, predicted: 1},
			{shares: best, next: best}, {step: 1, shares: best, next: best, outcome: true, promised: 1.2, got: 1.2}},
		"one change after the other": {{step: 1.2, shares: equal, next: worst, predicted: 1},
			{step: 1.2, shares: equal, next: best, predicted: 1}, {step: 1, shares: best, next: best, outcome: true,
				promised: 1.2, got: 1.2}},
	} {
		var o Outcomes
		for i, d := range decisions {
			a := Account{Step: d.step, Noise: d.noise}
			got, known := o.Add(int64(10*i), &a, Spread{10, d.spread}, d.shares, d.next, d.predicted)
			if known != d.outcome {
				t.Errorf("%s, decision %d: outcome known: %v", name, i, known)
				continue
			}
			same := near(got.Predicted, d.promised) || math.IsNaN(got.Predicted) && math.IsNaN(d.promised)
			if known && (!same || !near(got.Achieved, d.got) || got.Worse() != d.worse) {
				t.Errorf("%s: got %+v (worse: %v), want %v, %v, %v", name, got, got.Worse(), d.promised, d.got, d.worse)
			}
		}
	}
}

func TestTheTextOfAGain(t *testing.T) {
	for want, g := range map[string][3]float64{
		"1.19 times faster than equal shares (1.10 to 1.25)":  {1.19, 1.1, 1.25},
		"1.19 times faster than equal shares":                 {1.19, math.NaN(), math.NaN()},
		"as fast as equal shares":                             {1, 1, 1},
		"as fast as equal shares (0.95 to 1.10)":              {1.004, 0.95, 1.1},
		"0.80 times the speed of equal shares (0.70 to 0.90)": {0.8, 0.7, 0.9},
	} {
		if got := GainText(g[0], g[1], g[2]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheTimeWithOtherShares(t *testing.T) {
	a := Account{Step: 0.2}
	if got := a.With(0.1, 0.15); !near(got, 0.25) {
		t.Errorf("got %v, want 0.25", got)
	}
	if got := a.With(0.25, 0.1); !near(got, 0.08) {
		t.Errorf("a fitted time that is longer than the step: got %v, want the ratio of the fitted times, 0.08", got)
	}
	a.Step = 0.6648 // from a run whose curves were fitted to its first step
	if got := a.With(0.7896, 0.7896); !near(got, 0.6648) {
		t.Errorf("the same shares: got %v, want the measured step, 0.6648", got)
	}
	if got := a.With(0.7896, 0.79); !(got > 0.6648 && got < 0.666) {
		t.Errorf("nearly the same shares: got %v, want a little more than the measured step, 0.6648", got)
	}
	a.Step = 0.2
	if got := a.With(math.NaN(), 0.15); !math.IsNaN(got) {
		t.Errorf("an unknown time: got %v, want NaN", got)
	}
	if got := (&Account{}).With(0.1, 0.1); !math.IsNaN(got) {
		t.Errorf("no measured step: got %v, want NaN", got)
	}
}
