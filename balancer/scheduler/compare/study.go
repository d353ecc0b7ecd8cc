package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Row is the result of one policy.
type Row struct {
	Policy      string    `json:"policy"`
	Runs        []Figures `json:"runs"` // by seed
	Completion  Estimate  `json:"completion_s"`
	Throughput  Estimate  `json:"throughput_jobs_per_h"`
	Utilization Estimate  `json:"utilization"`
	P50         Estimate  `json:"completion_p50_s"` // means of the percentiles of the runs
	P95         Estimate  `json:"completion_p95_s"`
	P99         Estimate  `json:"completion_p99_s"`
	Gangs       []Gang    `json:"waits"` // of all runs, by number of GPUs
	// Figures of the steady window; NaN if a run has none.
	SteadyThroughput  Estimate `json:"steady_throughput_jobs_per_h"`
	SteadyUtilization Estimate `json:"steady_utilization"`
	Little            Estimate `json:"little_l_over_lambda_times_w"`
	Fairness          Estimate `json:"fairness"`          // Jain's index; NaN: unknown
	Slowdown          Estimate `json:"bounded_slowdown"`  // less is better; NaN: unknown
	Stops             Estimate `json:"stops_per_job"`     // by the policy, or because a GPU failed
	GPUHours          Estimate `json:"gpu_hours_per_job"` // in which the GPUs had a job
	Cost              Estimate `json:"cost_per_job"`      // NaN: prices are unknown
	// Ratios to the first baseline.
	CompletionRatio  Ratio    `json:"completion_ratio"`
	ThroughputRatio  Ratio    `json:"throughput_ratio"`
	UtilizationRatio Ratio    `json:"utilization_ratio"`
	V                Estimate `json:"v"`          // geometric mean of the three ratios
	HyperScore       Estimate `json:"hyperscore"` // of V and of its interval; the standard deviation is not known
}

// Study is a comparison of policies.
type Study struct {
	Baseline   string     `json:"baseline"` // of the rows: the first one
	Seeds      []uint64   `json:"seeds"`
	Rows       []Row      `json:"policies"` // in the order of the runs
	Against    []Against  `json:"against"`  // by baseline
	Regression Regression `json:"regression_of_utilization_on_completion"`
	Estimates  string     `json:"estimates,omitempty"` // source of the work that policies see; "": exact
}

// New compares all policies with the baseline, which must be one of them. Each policy needs one run for each seed.
func New(baseline string, seeds []uint64, all []Runs) (*Study, error) {
	return NewAgainst([]string{baseline}, seeds, all)
}

// NewAgainst is like [New], with several baselines. The ratios of the rows refer to the first one.
func NewAgainst(baselines []string, seeds []uint64, all []Runs) (*Study, error) {
	if len(baselines) == 0 || len(seeds) == 0 {
		return nil, fmt.Errorf("compare policies: got %d baselines and %d seeds, want at least 1 of each",
			len(baselines), len(seeds))
	}
	study := &Study{Baseline: baselines[0], Seeds: seeds}
	for i, runs := range all {
		if len(runs.Figures) != len(seeds) {
			return nil, fmt.Errorf("compare policies: policy %s: got %d runs, want %d, one for each seed", runs.Policy,
				len(runs.Figures), len(seeds))
		}
		if slices.ContainsFunc(all[:i], func(r Runs) bool { return r.Policy == runs.Policy }) {
			return nil, fmt.Errorf("compare policies: got policy %s twice, want each policy once", runs.Policy)
		}
	}
	for i, baseline := range baselines {
		base := slices.IndexFunc(all, func(r Runs) bool { return r.Policy == baseline })
		if base < 0 {
			return nil, fmt.Errorf("compare policies: got no run of the baseline %q", baseline)
		}
		if slices.Contains(baselines[:i], baseline) {
			return nil, fmt.Errorf("compare policies: got the baseline %s twice, want each baseline once", baseline)
		}
		against := Against{Baseline: baseline}
		for _, runs := range all {
			against.Policies = append(against.Policies, contrast(runs, all[base]))
		}
		study.Against = append(study.Against, against)
	}
	study.correct()
	base := all[slices.IndexFunc(all, func(r Runs) bool { return r.Policy == baselines[0] })]
	var x, y []float64
	for i, runs := range all {
		row, err := summarized(runs, base, &study.Against[0].Policies[i])
		if err != nil {
			return nil, err
		}
		study.Rows = append(study.Rows, row)
		x = append(x, column(runs.Figures, completion)...)
		y = append(y, column(runs.Figures, utilization)...)
	}
	study.Regression = regress(x, y)
	return study, nil
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

// summarized computes one row. c is the contrast with the baseline.
func summarized(runs, base Runs, c *Contrast) (Row, error) {
	row := Row{Policy: runs.Policy, Runs: runs.Figures, CompletionRatio: c.Completion, ThroughputRatio: c.Throughput,
		UtilizationRatio: c.Utilization}
	for _, of := range []struct {
		figure   func(Figures) float64
		estimate *Estimate
	}{
		{completion, &row.Completion},
		{throughput, &row.Throughput},
		{utilization, &row.Utilization},
		{func(f Figures) float64 { return f.P50 }, &row.P50},
		{func(f Figures) float64 { return f.P95 }, &row.P95},
		{func(f Figures) float64 { return f.P99 }, &row.P99},
		{steadyThroughput, &row.SteadyThroughput},
		{steadyUtilization, &row.SteadyUtilization},
		{func(f Figures) float64 { return f.inWindow(func(s *Steady) float64 { return s.Little }) }, &row.Little},
		{func(f Figures) float64 { return or(f.Fairness) }, &row.Fairness},
		{slowdown, &row.Slowdown},
		{func(f Figures) float64 { return float64(f.Stops) / float64(f.jobs()) }, &row.Stops},
		{func(f Figures) float64 { return f.GPUHours / float64(f.jobs()) }, &row.GPUHours},
		{func(f Figures) float64 { return or(f.Cost) / float64(f.jobs()) }, &row.Cost},
	} {
		*of.estimate = estimate(column(runs.Figures, of.figure))
	}
	for _, f := range runs.Figures {
		for _, g := range f.Gangs {
			row.Gangs = waited(row.Gangs, g)
		}
	}
	v := slices.Repeat([]float64{1}, len(runs.Figures))
	for _, figure := range []struct {
		of      func(Figures) float64
		inverse bool // less is better
	}{{completion, true}, {throughput, false}, {utilization, false}} {
		for i, ratio := range ratiosOf(runs, base, figure.of, figure.inverse) {
			v[i] *= math.Cbrt(ratio)
		}
	}
	row.V = geometric(v)
	// HyperScore increases with V, so the ends of its interval are those of the interval of V.
	row.HyperScore = Estimate{Deviation: math.NaN()}
	for _, end := range []struct {
		v     float64
		score *float64
	}{{row.V.Mean, &row.HyperScore.Mean}, {row.V.Low, &row.HyperScore.Low}, {row.V.High, &row.HyperScore.High}} {
		if math.IsNaN(end.v) && !math.IsNaN(row.V.Mean) { // one seed has no interval
			*end.score = math.NaN()
			continue
		}
		score, err := scheduler.HyperScore(end.v)
		if err != nil {
			return row, fmt.Errorf("compare policies: policy %s: %w", runs.Policy, err)
		}
		*end.score = score
	}
	return row, nil
}
