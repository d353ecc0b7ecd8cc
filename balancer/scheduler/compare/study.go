package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
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
	// Ratios to the baseline.
	CompletionRatio  Ratio    `json:"completion_ratio"`
	ThroughputRatio  Ratio    `json:"throughput_ratio"`
	UtilizationRatio Ratio    `json:"utilization_ratio"`
	V                Estimate `json:"v"`          // geometric mean of the three ratios
	HyperScore       Estimate `json:"hyperscore"` // of V and of its interval; the standard deviation is not known
}

// Study is a comparison of policies.
type Study struct {
	Baseline   string     `json:"baseline"`
	Seeds      []uint64   `json:"seeds"`
	Rows       []Row      `json:"policies"` // in the order of the runs
	Regression Regression `json:"regression_of_utilization_on_completion"`
	Estimates  string     `json:"estimates,omitempty"` // what the policies know of the work of jobs; "": the exact work
}

// New compares all policies with the baseline, which must be one of them. Each policy needs one run for each seed.
func New(baseline string, seeds []uint64, all []Runs) (*Study, error) {
	base := slices.IndexFunc(all, func(r Runs) bool { return r.Policy == baseline })
	if base < 0 {
		return nil, fmt.Errorf("compare policies: got no run of the baseline %q", baseline)
	}
	if len(seeds) == 0 {
		return nil, fmt.Errorf("compare policies: got no seeds, want at least 1")
	}
	study := &Study{Baseline: baseline, Seeds: seeds}
	var x, y []float64
	for i, runs := range all {
		if len(runs.Figures) != len(seeds) {
			return nil, fmt.Errorf("compare policies: policy %s: got %d runs, want %d, one for each seed", runs.Policy,
				len(runs.Figures), len(seeds))
		}
		if slices.ContainsFunc(all[:i], func(r Runs) bool { return r.Policy == runs.Policy }) {
			return nil, fmt.Errorf("compare policies: got policy %s twice, want each policy once", runs.Policy)
		}
		row, err := compared(runs, all[base])
		if err != nil {
			return nil, err
		}
		study.Rows = append(study.Rows, row)
		x = append(x, column(runs.Figures, completion)...)
		y = append(y, column(runs.Figures, utilization)...)
	}
	study.correct(base)
	study.Regression = regress(x, y)
	return study, nil
}

func completion(f Figures) float64  { return f.Completion }
func throughput(f Figures) float64  { return f.Throughput }
func utilization(f Figures) float64 { return f.Utilization }

func column(all []Figures, of func(Figures) float64) []float64 {
	out := make([]float64, len(all))
	for i, f := range all {
		out[i] = of(f)
	}
	return out
}

// compared computes one row. Its p values are not corrected yet.
func compared(runs, base Runs) (Row, error) {
	row := Row{Policy: runs.Policy, Runs: runs.Figures}
	for _, of := range []struct {
		figure   func(Figures) float64
		estimate *Estimate
	}{
		{func(f Figures) float64 { return f.P50 }, &row.P50},
		{func(f Figures) float64 { return f.P95 }, &row.P95},
		{func(f Figures) float64 { return f.P99 }, &row.P99},
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
		of       func(Figures) float64
		inverse  bool // less is better
		estimate *Estimate
		ratio    *Ratio
	}{
		{completion, true, &row.Completion, &row.CompletionRatio},
		{throughput, false, &row.Throughput, &row.ThroughputRatio},
		{utilization, false, &row.Utilization, &row.UtilizationRatio},
	} {
		values, ratios := column(runs.Figures, figure.of), column(base.Figures, figure.of)
		for i := range ratios {
			ratios[i] = values[i] / ratios[i]
			if figure.inverse {
				ratios[i] = 1 / ratios[i]
			}
			v[i] *= math.Cbrt(ratios[i])
		}
		*figure.estimate = estimate(values)
		differences := logs(ratios)
		*figure.ratio = Ratio{geometric(ratios), studentP(differences), wilcoxonP(differences)}
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

// correct applies Holm's method to the tests of each figure. The baseline is not tested.
func (s *Study) correct(base int) {
	for _, of := range []func(*Row) *Ratio{
		func(r *Row) *Ratio { return &r.CompletionRatio },
		func(r *Row) *Ratio { return &r.ThroughputRatio },
		func(r *Row) *Ratio { return &r.UtilizationRatio },
	} {
		for _, p := range []func(*Ratio) *float64{
			func(r *Ratio) *float64 { return &r.Student },
			func(r *Ratio) *float64 { return &r.Wilcoxon },
		} {
			values := make([]float64, len(s.Rows))
			for i := range s.Rows {
				values[i] = *p(of(&s.Rows[i]))
			}
			values[base] = math.NaN()
			for i, v := range holm(values) {
				*p(of(&s.Rows[i])) = v
			}
		}
	}
}
