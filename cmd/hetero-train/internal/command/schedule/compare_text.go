package schedule

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// widths returns the width of columns with names of policies, and the width of columns with ratios to the baseline.
func widths(s *compare.Study) (name, ratio int) {
	name = 8
	for _, r := range s.Rows {
		name = max(name, utf8.RuneCountInString(r.Policy))
	}
	return name, max(8, utf8.RuneCountInString("x "+s.Baseline))
}

// comparisonText returns the table for the terminal.
func comparisonText(s *compare.Study) string {
	var b strings.Builder
	name, x := widths(s)
	fmt.Fprintf(&b, "%-*s %21s %*s %19s %*s %16s %*s %9s %21s %15s\n", name, "policy", "completion s", x,
		"x "+s.Baseline, "throughput jobs/h", x, "x "+s.Baseline, "utilization %", x, "x "+s.Baseline, "p",
		"HyperScore", "slowdown")
	rate := 2
	if s.Rows[0].Throughput.Mean < 1 { // long jobs: two decimals would show only zeros
		rate = 4
	}
	for _, r := range s.Rows {
		fmt.Fprintf(&b, "%-*s %21s %*s %19s %*s %16s %*s %9s %21s %15s\n", name, r.Policy,
			between(r.Completion, 1, 1), x, figure(r.CompletionRatio.Mean, 3), between(r.Throughput, 1, rate), x,
			figure(r.ThroughputRatio.Mean, 3),
			between(r.Utilization, 100, 1), x, figure(r.UtilizationRatio.Mean, 3),
			probability(r.CompletionRatio.Wilcoxon),
			interval(r.HyperScore, "%.1f"), known(r.Slowdown, 1, 2))
	}
	b.WriteString(tails(s))
	b.WriteString(steadyText(s))
	b.WriteString(contrastsText(s))
	if len(s.Seeds) == 1 {
		b.WriteString("\n1 list of jobs")
	} else {
		fmt.Fprintf(&b, "\n%d lists of jobs; ± is the half width of the 95 %% interval of the mean", len(s.Seeds))
	}
	if s.Estimates != "" {
		fmt.Fprintf(&b, "\n%s", s.Estimates)
	}
	if reg := s.Regression; !math.IsNaN(reg.Slope) {
		fmt.Fprintf(&b, "\nregression over %d runs: utilization %% = %.3g %+.3g * completion s, R² %.3f, p %s",
			reg.Runs, 100*reg.Intercept, 100*reg.Slope, reg.R2, probability(reg.P))
	}
	const rounding = 1e-9
	base := s.Rows[slices.IndexFunc(s.Rows, func(r compare.Row) bool { return r.Policy == s.Baseline })]
	best := slices.MaxFunc(s.Rows, func(x, y compare.Row) int { // by V, because the HyperScore is 200 for every large V
		return cmp.Or(cmp.Compare(x.HyperScore.Mean, y.HyperScore.Mean), cmp.Compare(x.V.Mean, y.V.Mean))
	})
	if best.HyperScore.Mean <= base.HyperScore.Mean*(1+rounding) {
		fmt.Fprintf(&b, "\nno policy has a higher HyperScore than %s\n", s.Baseline)
		return b.String()
	}
	fmt.Fprintf(&b,
		"\nhighest HyperScore: %s, with V = %s; compared with %s: completion time %s, throughput %s, utilization %s\n",
		best.Policy, figure(best.V.Mean, 3), s.Baseline,
		change(1/best.CompletionRatio.Mean, "longer", "shorter"), change(best.ThroughputRatio.Mean, "higher", "lower"),
		change(best.UtilizationRatio.Mean, "higher", "lower"))
	return b.String()
}

// tails returns the table of percentiles and longest waits.
func tails(s *compare.Study) string {
	var b strings.Builder
	name, _ := widths(s)
	fmt.Fprintf(&b, "\n%-*s %9s %9s %9s   longest wait s of jobs with", name, "policy", "p50 s", "p95 s", "p99 s")
	for _, g := range s.Rows[0].Gangs {
		fmt.Fprintf(&b, " %9s", show.Count(g.GPUs, "GPU"))
	}
	for _, r := range s.Rows {
		fmt.Fprintf(&b, "\n%-*s %9s %9s %9s   %27s", name, r.Policy, figure(r.P50.Mean, 0), figure(r.P95.Mean, 0),
			figure(r.P99.Mean, 0), "")
		for _, g := range r.Gangs {
			fmt.Fprintf(&b, " %9s", figure(g.Worst, 0))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// change describes a ratio in words. The parameters above and below are the words for ratios above and below 1.
func change(ratio float64, above, below string) string {
	switch {
	case math.Abs(ratio-1) < 1e-9: // differs from 1 only by a rounding error
		return "equal"
	case ratio > 1:
		return figure(100*(ratio-1), 1) + " % " + above
	case ratio < 1:
		return figure(100*(1-ratio), 1) + " % " + below
	}
	return "equal"
}

// figure shows a number with the given number of digits after the point. It uses an exponent if this text would be long
// or contain only zeros.
func figure(v float64, digits int) string {
	if size := math.Abs(v); size >= 1e9 || size > 0 && size < math.Pow(10, -float64(digits)) {
		return fmt.Sprintf("%.3g", v)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// seconds formats a simulated time.
func seconds(s float64) string {
	switch {
	case s < 120:
		return fmt.Sprintf("%.1f s", s)
	case s < 2*3600:
		return fmt.Sprintf("%.1f min", s/60)
	}
	return figure(s/3600, 2) + " h"
}

func between(e compare.Estimate, scale float64, digits int) string {
	text := figure(scale*e.Mean, digits)
	if !math.IsNaN(e.Low) {
		text += " ± " + figure(scale*(e.High-e.Low)/2, digits)
	}
	return text
}

func interval(e compare.Estimate, format string) string {
	text := fmt.Sprintf(format, e.Mean)
	if !math.IsNaN(e.Low) {
		text += fmt.Sprintf(" ("+format+"…"+format+")", e.Low, e.High)
	}
	return text
}

func probability(p float64) string {
	switch {
	case math.IsNaN(p):
		return "-"
	case p < 1e-4:
		return "< 0.0001"
	}
	return fmt.Sprintf("%.4f", p)
}

// steadyText returns the table of the steady window, of fairness, of stops and of cost.
func steadyText(s *compare.Study) string {
	var b strings.Builder
	cost := !math.IsNaN(s.Rows[0].Cost.Mean)
	name, _ := widths(s)
	fmt.Fprintf(&b, "\n%-*s %17s %14s %13s %15s %13s %15s", name, "policy", "steady jobs/h", "steady %", "L/(lambda W)",
		"fairness", "stops/job", "GPU h/job")
	if cost {
		fmt.Fprintf(&b, " %17s", "cost/job")
	}
	for _, r := range s.Rows {
		fmt.Fprintf(&b, "\n%-*s %17s %14s %13s %15s %13s %15s", name, r.Policy, known(r.SteadyThroughput, 1, 2),
			known(r.SteadyUtilization, 100, 1), known(r.Little, 1, 2), known(r.Fairness, 1, 3), known(r.Stops, 1, 3),
			known(r.GPUHours, 1, 3))
		if cost {
			fmt.Fprintf(&b, " %17s", known(r.Cost, 1, 3))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// known shows an estimate, or a dash if it is unknown.
func known(e compare.Estimate, scale float64, digits int) string {
	if math.IsNaN(e.Mean) {
		return "-"
	}
	return between(e, scale, digits)
}

// contrastsText returns one table for each baseline after the first one.
func contrastsText(s *compare.Study) string {
	var b strings.Builder
	name, _ := widths(s)
	for _, against := range s.Against[1:] {
		x := "x " + against.Baseline
		wide := max(22, utf8.RuneCountInString("steady jobs/h "+x))
		fmt.Fprintf(&b, "\n%-*s %*s %9s %*s %9s %*s %9s", name, "policy", wide, "completion "+x, "p", wide,
			"steady jobs/h "+x, "p", wide, "steady util. "+x, "p")
		for _, c := range against.Policies {
			fmt.Fprintf(&b, "\n%-*s", name, c.Policy)
			for _, r := range []compare.Ratio{c.Completion, c.SteadyThroughput, c.SteadyUtilization} {
				text := "-"
				if !math.IsNaN(r.Mean) {
					text = interval(r.Estimate, "%.3f")
				}
				fmt.Fprintf(&b, " %*s %9s", wide, text, probability(r.Wilcoxon))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// writeRuns writes one line per policy and seed.
func writeRuns(w io.Writer, s *compare.Study) error {
	out := csv.NewWriter(w)
	// out.Flush below reports the errors of Write
	out.Write([]string{"policy", "seed", "completion_s", "throughput_jobs_per_h", "utilization", "wait_s", "makespan_s",
		"completion_p50_s", "completion_p95_s", "completion_p99_s", "longest_wait_s", "stops",
		"steady_throughput_jobs_per_h", "steady_utilization", "little_l_over_lambda_times_w", "fairness", "gpu_hours",
		"cost", "bounded_slowdown"})
	for _, row := range s.Rows {
		for i, f := range row.Runs {
			line := []string{row.Policy, strconv.FormatUint(s.Seeds[i], 10)}
			longest := 0.0
			for _, g := range f.Gangs {
				longest = max(longest, g.Worst)
			}
			for _, v := range []float64{f.Completion, f.Throughput, f.Utilization, f.Wait, f.Makespan, f.P50, f.P95,
				f.P99, longest} {
				line = append(line, strconv.FormatFloat(v, 'g', -1, 64))
			}
			line = append(line, strconv.Itoa(f.Stops))
			for _, v := range f.Optional() {
				text := "" // empty field: the value is unknown
				if !math.IsNaN(v) {
					text = strconv.FormatFloat(v, 'g', -1, 64)
				}
				line = append(line, text)
			}
			out.Write(line)
		}
	}
	out.Flush()
	return out.Error()
}
