package analysis

import (
	"fmt"
	"math"
)

// expectation is the ratio to the baseline that a policy should reach with four unequal workers.
type expectation struct {
	policy, what string
	key          string // key of PolicyResult.Ratios
	ratio        float64
	below        bool // a lower ratio is better
}

// expectations are ratios to the baseline. They come from these values for the baseline, proportional and dynamic:
// throughput 450, 600 and 650 samples/s; utilization 65, 80 and 85 %; scaling efficiency 0.65, 0.78 and 0.85; load
// imbalance 35, 18 and 12 %. Only ratios are used, because absolute values depend on the machine. The policy hybrid
// has the expectations of dynamic.
var expectations = []expectation{
	{"proportional", "throughput", "throughput", 600. / 450, false},
	{"dynamic", "throughput", "throughput", 650. / 450, false},
	{"hybrid", "throughput", "throughput", 650. / 450, false},
	{"proportional", "GPU utilization", "utilization", 80. / 65, false},
	{"dynamic", "GPU utilization", "utilization", 85. / 65, false},
	{"hybrid", "GPU utilization", "utilization", 85. / 65, false},
	{"proportional", "scaling efficiency", "efficiency", 0.78 / 0.65, false},
	{"dynamic", "scaling efficiency", "efficiency", 0.85 / 0.65, false},
	{"hybrid", "scaling efficiency", "efficiency", 0.85 / 0.65, false},
	{"proportional", "load imbalance", "imbalance", 18. / 35, true},
	{"dynamic", "load imbalance", "imbalance", 12. / 35, true},
	{"hybrid", "load imbalance", "imbalance", 12. / 35, true},
}

// expectedRanges contains the values that a policy should reach with four unequal workers, as text.
type expectedRanges struct{ throughput, utilization, efficiency, imbalance, straggler string }

// rangesOf contains the expected ranges of each policy. The policy hybrid has the ranges of dynamic. Absolute
// throughput depends on the machine, so only its ratio to the baseline is relevant.
var rangesOf = map[string]expectedRanges{
	"none":         {"1.00x (450)", "60–70 %", "0.60–0.70", "30–40 %", "high"},
	"proportional": {"1.33x (600)", "75–85 %", "0.75–0.85", "15–20 %", "medium"},
	"dynamic":      {"1.44x (650)", "80–90 %", "0.80–0.90", "10–15 %", "low"},
	"hybrid":       {"1.44x (650)", "80–90 %", "0.80–0.90", "10–15 %", "low"},
}

// fiveFigures returns the table of the five main metrics. It has one row for each metric and policy, with the
// measured value and the expected range.
func (c *Comparison) fiveFigures() (columns []string, rows [][]string) {
	columns = []string{"figure"}
	var known []*PolicyResult
	for _, p := range c.Policies {
		if _, ok := rangesOf[p.Policy]; ok {
			known = append(known, p)
			columns = append(columns, p.Policy, "expected")
		}
	}
	for _, figure := range []struct {
		name     string
		measured func(p *PolicyResult) string
		expected func(f expectedRanges) string
	}{
		{"throughput", func(p *PolicyResult) string {
			return value(p.Throughput.Value, 1, "%.0f", " samples/s, ") + value(p.Speedup.Value, 1, "%.2f", "x")
		}, func(f expectedRanges) string { return f.throughput }},
		{"average utilization", func(p *PolicyResult) string { return value(p.Utilization.Value, 1, "%.0f", " %") }, func(f expectedRanges) string { return f.utilization }},
		{"scaling efficiency", func(p *PolicyResult) string { return value(p.Efficiency.Value, 1, "%.2f", "") }, func(f expectedRanges) string { return f.efficiency }},
		{"load imbalance", func(p *PolicyResult) string { return value(p.Imbalance.Value, 100, "%.1f", " %") }, func(f expectedRanges) string { return f.imbalance }},
		{"straggler impact", func(p *PolicyResult) string {
			return fmt.Sprintf("%s (%s)", stragglerImpact(p.Waiting), value(p.Waiting.Value, 100, "%.1f", " % waiting"))
		}, func(f expectedRanges) string { return f.straggler }},
	} {
		row := []string{figure.name}
		for _, p := range known {
			row = append(row, figure.measured(p), figure.expected(rangesOf[p.Policy]))
		}
		rows = append(rows, row)
	}
	return columns, rows
}

// expects reports whether the expectations apply, which requires four unequal ranks.
func (c *Comparison) expects() bool {
	if c.Ranks != 4 || len(c.Policies) == 0 || c.Policies[0].Policy != baseline {
		return false
	}
	for _, solo := range c.Solo {
		if solo.Scenario != c.Solo[0].Scenario {
			return true
		}
	}
	return false
}

// possible returns the largest possible speed-up over equal shares. It is the total throughput of the ranks divided
// by their throughput if all ranks were as slow as the slowest one.
func (c *Comparison) possible() float64 {
	sum, least := 0.0, math.Inf(1)
	for _, solo := range c.Solo {
		sum, least = sum+solo.Throughput.Value, min(least, solo.Throughput.Value)
	}
	return sum / (float64(len(c.Solo)) * least)
}

// verdict reports whether a ratio reaches the expectation, taking its interval into account.
func (e expectation) verdict(got Estimate) string {
	low, high, want := got.Low, got.High, e.ratio
	if e.below {
		low, high, want = -high, -low, -want
	}
	switch {
	case !got.Known():
		return "unknown"
	case low >= want:
		return "reached"
	case high < want:
		return "not reached"
	}
	return "open: the interval contains the expected ratio"
}

// Fractions of the compute time from which stragglers have a high or a medium impact.
const (
	highWaiting   = 0.20
	mediumWaiting = 0.10
)

// stragglerImpact rates the fraction of the ranks' compute time that is spent waiting for the slowest rank.
func stragglerImpact(waiting Estimate) string {
	switch {
	case !waiting.Known():
		return noValue
	case waiting.Value >= highWaiting:
		return "high"
	case waiting.Value >= mediumWaiting:
		return "medium"
	}
	return "low"
}

// expectedRows returns the table of expectations in the report.
func (c *Comparison) expectedRows() [][]string {
	var rows [][]string
	for _, e := range expectations {
		for _, p := range c.Policies {
			if p.Policy != e.policy {
				continue
			}
			got := p.Ratios[e.key]
			if e.key == "efficiency" && !p.Efficiency.Known() || !got.Known() {
				continue
			}
			want := fmt.Sprintf("at least %.2f", e.ratio)
			if e.below {
				want = fmt.Sprintf("at most %.2f", e.ratio)
			}
			rows = append(rows, []string{e.what, p.Policy, want, interval(got, 1, "%.2f", ""), e.verdict(got)})
		}
	}
	return rows
}
