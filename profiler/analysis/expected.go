package analysis

import (
	"fmt"
	"math"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/policies"
)

// expectation is the ratio to the baseline that a policy should reach with four unequal workers.
type expectation struct {
	policy, what string
	key          string // key of PolicyResult.Ratios
	ratio        float64
	below        bool // a lower ratio is better
}

// expectations are ratios to the baseline. Only ratios are used, because absolute values depend on the machine.
var expectations = ratiosOf(expected)

// ratiosOf returns the ratios of the expected values of all policies to those of the baseline.
func ratiosOf(values map[string]expectedValues) (list []expectation) {
	base := values[baseline]
	for _, figure := range []struct {
		what, key string
		of        func(e expectedValues) float64
		below     bool
	}{
		{"throughput", "throughput", func(e expectedValues) float64 { return e.throughput }, false},
		{"GPU utilization", "utilization", func(e expectedValues) float64 { return e.utilization }, false},
		{"scaling efficiency", "efficiency", func(e expectedValues) float64 { return e.efficiency }, false},
		{"load imbalance", "imbalance", func(e expectedValues) float64 { return e.imbalance }, true},
	} {
		for _, policy := range policies.Names() {
			if e, ok := values[policy]; ok && policy != baseline {
				list = append(list,
					expectation{policy, figure.what, figure.key, figure.of(e) / figure.of(base), figure.below})
			}
		}
	}
	return list
}

// expectedValues contains the values that a policy should reach with four unequal workers: one value of each figure,
// and its range as text.
type expectedValues struct {
	throughput  float64 // samples/s on one reference machine; only the ratio to the baseline is used elsewhere
	utilization float64 // %
	efficiency  float64
	imbalance   float64 // %
	straggler   string

	utilizationRange, efficiencyRange, imbalanceRange string
}

// expected contains the expected values of each policy. The values of the policy hybrid are those of dynamic.
var expected = map[string]expectedValues{
	"none":         {450, 65, 0.65, 35, "high", "60–70", "0.60–0.70", "30–40"},
	"proportional": {600, 80, 0.78, 18, "medium", "75–85", "0.75–0.85", "15–20"},
	"dynamic":      {650, 85, 0.85, 12, "low", "80–90", "0.80–0.90", "10–15"},
	"hybrid":       {650, 85, 0.85, 12, "low", "80–90", "0.80–0.90", "10–15"},
}

// fiveFigures returns the table of the five main metrics. It has one row for each metric. A row contains, for each
// policy, the measured value and its ratio to the baseline, and the expected value with its range and ratio.
func (c *Comparison) fiveFigures() (columns []string, rows [][]string) {
	columns = []string{"figure"}
	var known []*PolicyResult
	for _, p := range c.Policies {
		if _, ok := expected[p.Policy]; ok {
			known = append(known, p)
			columns = append(columns, p.Policy, "expected")
		}
	}
	base := expected[baseline]
	ratio := func(p *PolicyResult, key string) string {
		if p.Policy == baseline {
			return ", 1.00x"
		}
		if r := p.Ratios[key]; r.Known() {
			return fmt.Sprintf(", %.2fx", r.Value)
		}
		return ""
	}
	for _, figure := range []struct {
		name     string
		measured func(p *PolicyResult) string
		expected func(e expectedValues) string
	}{
		{"throughput", func(p *PolicyResult) string {
			return value(p.Throughput.Value, 1, "%.0f", " samples/s") + ratio(p, "throughput")
		}, func(e expectedValues) string {
			return fmt.Sprintf("%.0f samples/s, %.2fx", e.throughput, e.throughput/base.throughput)
		}},
		{"average utilization", func(p *PolicyResult) string {
			return value(p.Utilization.Value, 1, "%.0f", " %") + ratio(p, "utilization")
		}, func(e expectedValues) string {
			return fmt.Sprintf("%.0f %% (%s), %.2fx", e.utilization, e.utilizationRange, e.utilization/base.utilization)
		}},
		{"scaling efficiency", func(p *PolicyResult) string {
			if !p.Efficiency.Known() {
				return noValue
			}
			return value(p.Efficiency.Value, 1, "%.2f", "") + ratio(p, "efficiency")
		}, func(e expectedValues) string {
			return fmt.Sprintf("%.2f (%s), %.2fx", e.efficiency, e.efficiencyRange, e.efficiency/base.efficiency)
		}},
		{"load imbalance", func(p *PolicyResult) string {
			return value(p.Imbalance.Value, 100, "%.1f", " %") + ratio(p, "imbalance")
		}, func(e expectedValues) string {
			return fmt.Sprintf("%.0f %% (%s), %.2fx", e.imbalance, e.imbalanceRange, e.imbalance/base.imbalance)
		}},
		{"straggler impact", func(p *PolicyResult) string {
			return fmt.Sprintf("%s (%s)", stragglerImpact(p.Waiting), value(p.Waiting.Value, 100, "%.1f", " % waiting"))
		}, func(e expectedValues) string { return e.straggler }},
	} {
		row := []string{figure.name}
		for _, p := range known {
			row = append(row, figure.measured(p), figure.expected(expected[p.Policy]))
		}
		rows = append(rows, row)
	}
	return columns, rows
}

// FiveFigures returns, in Markdown, the table of the five main metrics of each comparison with four unequal ranks. One
// line describes each comparison. FiveFigures returns "" if there is no such comparison.
func (s *Study) FiveFigures() string {
	var b strings.Builder
	for _, c := range s.Comparisons {
		if !c.expects() {
			continue
		}
		runs := 0
		for _, p := range c.Policies {
			runs = max(runs, len(p.Runs))
		}
		fmt.Fprintf(&b, "%s on %s, scenario %s, global batch %d, runs of each policy: %d%s.\n", c.Model, c.Dataset,
			c.Scenario, c.BatchSize, runs, onMachine(c.Machine))
		fmt.Fprintf(&b, "A figure followed by `x` is the ratio to policy `none`; the largest possible ratio of throughput is %.2f.\n\n",
			c.possible())
		b.WriteString(markdown(c.fiveFigures()) + "\n")
	}
	return b.String()
}

func onMachine(name string) string {
	if name == "" {
		return ""
	}
	return ", on " + name
}

// expects reports whether the expectations apply to the comparison. They require four unequal ranks.
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

// Thresholds for the fraction of the compute time that is spent waiting. From these values on, the impact of stragglers
// is high or medium.
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
