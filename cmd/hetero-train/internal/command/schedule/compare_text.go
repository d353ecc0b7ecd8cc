package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// readPrices reads the prices of --price. It returns an error if a GPU type of the cluster has no price.
func (s *source) readPrices() error {
	if s.price == "" {
		return nil
	}
	types := s.setup.Cluster.Types
	prices := make([]float64, len(types))
	for t := range prices {
		prices[t] = math.NaN()
	}
	for _, part := range strings.Split(s.price, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || !(v >= 0 && v <= 1e9) {
			return exit.Usagef("%s: --price: got %q, want TYPE=NUMBER with a number from 0 to 1e9", s.command, part)
		}
		known := false
		for t := range types {
			if types[t].Name != name {
				continue
			}
			if known = true; !math.IsNaN(prices[t]) {
				return exit.Usagef("%s: --price: got type %s twice, want each type once", s.command, name)
			}
			prices[t] = v
		}
		if !known {
			return exit.Usagef("%s: --price: unknown type of GPU: got %q, want one of %s", s.command, name,
				typesText(types))
		}
	}
	for _, g := range s.setup.Cluster.GPUs {
		if math.IsNaN(prices[g.Type]) {
			return exit.Usagef("%s: --price: got no price of type %s, want a price of each type of the cluster: %s",
				s.command, types[g.Type].Name, typesText(types))
		}
	}
	s.prices = prices
	return nil
}

// judged returns all results of a run.
func (s *source) judged(w *scheduler.Workload, r *scheduler.Result) (compare.Figures, error) {
	figures, err := compare.FiguresOf(w, r)
	if err == nil {
		figures.Judge(s.setup.Cluster, w, s.setup.Speeds, s.prices, r)
	}
	return figures, err
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
