package compare

import (
	"math"
	"slices"
)

// Runs are the runs of one policy, one for each seed, in the order of the seeds.
type Runs struct {
	Policy  string
	Figures []Figures
}

// Ratio compares one figure of a policy with the baseline. Above 1, the policy is better.
type Ratio struct {
	Estimate         // geometric mean over seeds
	Student  float64 // p value of the paired t test, corrected by Holm's method
	Wilcoxon float64 // p value of the signed-rank test, corrected by Holm's method
}

// Contrast compares one policy with one baseline. All ratios are above 1 if the policy is better. A ratio of steady
// figures is NaN if a run has no steady window, and that of the slowdown if it is unknown.
type Contrast struct {
	Policy            string `json:"policy"`
	Completion        Ratio  `json:"completion_ratio"`
	P99               Ratio  `json:"completion_p99_ratio"`
	Throughput        Ratio  `json:"throughput_ratio"`
	Utilization       Ratio  `json:"utilization_ratio"`
	SteadyThroughput  Ratio  `json:"steady_throughput_ratio"`
	SteadyUtilization Ratio  `json:"steady_utilization_ratio"`
	Slowdown          Ratio  `json:"bounded_slowdown_ratio"`
}

// Against contains the contrasts of all policies with one baseline.
type Against struct {
	Baseline string     `json:"baseline"`
	Policies []Contrast `json:"policies"` // in the order of the rows
}

// contrasted lists the figures that contrasts compare.
var contrasted = []struct {
	of      func(Figures) float64
	inverse bool // less is better
	ratio   func(*Contrast) *Ratio
}{
	{completion, true, func(c *Contrast) *Ratio { return &c.Completion }},
	{func(f Figures) float64 { return f.P99 }, true, func(c *Contrast) *Ratio { return &c.P99 }},
	{throughput, false, func(c *Contrast) *Ratio { return &c.Throughput }},
	{utilization, false, func(c *Contrast) *Ratio { return &c.Utilization }},
	{steadyThroughput, false, func(c *Contrast) *Ratio { return &c.SteadyThroughput }},
	{steadyUtilization, false, func(c *Contrast) *Ratio { return &c.SteadyUtilization }},
	{slowdown, true, func(c *Contrast) *Ratio { return &c.Slowdown }},
}

// contrast compares runs with those of a baseline. Its p values are not corrected yet.
func contrast(runs, base Runs) Contrast {
	c := Contrast{Policy: runs.Policy}
	for _, figure := range contrasted {
		ratios := ratiosOf(runs, base, figure.of, figure.inverse)
		differences := logs(ratios)
		if slices.ContainsFunc(differences, func(d float64) bool { return math.IsNaN(d) || math.IsInf(d, 0) }) {
			none := math.NaN() // a figure of a run is unknown or 0
			*figure.ratio(&c) = Ratio{Estimate{none, none, none, none}, none, none}
			continue
		}
		*figure.ratio(&c) = Ratio{geometric(ratios), studentP(differences), wilcoxonP(differences)}
	}
	return c
}

// ratiosOf divides a figure of each run by that of the baseline with the same seed.
func ratiosOf(runs, base Runs, of func(Figures) float64, inverse bool) []float64 {
	ratios, divisors := column(runs.Figures, of), column(base.Figures, of)
	for i := range ratios {
		if ratios[i] /= divisors[i]; inverse {
			ratios[i] = 1 / ratios[i]
		}
	}
	return ratios
}
