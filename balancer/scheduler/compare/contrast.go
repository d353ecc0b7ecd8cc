package compare

import (
	"math"
	"slices"
)

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

func steadyThroughput(f Figures) float64 {
	return f.inWindow(func(s *Steady) float64 { return s.Throughput })
}
func steadyUtilization(f Figures) float64 {
	return f.inWindow(func(s *Steady) float64 { return s.Utilization })
}

// inWindow returns a figure of the steady window, or NaN.
func (f *Figures) inWindow(of func(*Steady) float64) float64 {
	if f.Steady == nil {
		return math.NaN()
	}
	return of(f.Steady)
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

// correct applies Holm's method to the tests of each figure, over all policies and all baselines. A baseline is not
// tested against itself. Two baselines are tested against each other once.
func (s *Study) correct() {
	named := func(policy string) int {
		return slices.IndexFunc(s.Against, func(a Against) bool { return a.Baseline == policy })
	}
	for _, figure := range contrasted {
		for _, p := range []func(*Ratio) *float64{
			func(r *Ratio) *float64 { return &r.Student },
			func(r *Ratio) *float64 { return &r.Wilcoxon },
		} {
			var values []float64
			var tests, twins []*float64 // twins: the same test with the two baselines exchanged, or nil
			for a := range s.Against {
				for i := range s.Against[a].Policies {
					c := &s.Against[a].Policies[i]
					value := p(figure.ratio(c))
					switch b := named(c.Policy); {
					case b == a:
						*value = math.NaN()
					case b >= 0 && b < a: // tested before
					default:
						var twin *float64
						if b > a {
							other := slices.IndexFunc(s.Against[b].Policies, func(o Contrast) bool {
								return o.Policy == s.Against[a].Baseline
							})
							twin = p(figure.ratio(&s.Against[b].Policies[other]))
						}
						values, tests, twins = append(values, *value), append(tests, value), append(twins, twin)
					}
				}
			}
			for i, v := range holm(values) {
				if *tests[i] = v; twins[i] != nil {
					*twins[i] = v
				}
			}
		}
	}
}
