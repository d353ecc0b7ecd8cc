package status

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/telemetry"
)

// Limits of a screen.
const (
	mostRows   = 32 // ranks
	mostAlerts = 3
)

// Text formats a run for a terminal.
func Text(v runs.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s%s\n", v.Name, v.State.Kind, progress(v))
	if v.State.Why != "" {
		fmt.Fprintf(&b, "%s\n", v.State.Why)
	}
	facts := []string{v.Settings.Model.Name + " on " + v.Settings.Data.Dataset, "policy " + v.Settings.Balance.Policy}
	if r := first(v); r != nil {
		facts = append(facts, "loss "+show.Figure("%.4f", r.Loss), "step "+show.Figure("%.1f ms", 1e3*r.Took().Seconds()))
	}
	if n := len(v.Evals); n > 0 && v.Evals[n-1].Evaluation.Loss != nil {
		facts = append(facts, fmt.Sprintf("evaluation loss %.4f at step %d", *v.Evals[n-1].Evaluation.Loss, v.Evals[n-1].Step))
	}
	fmt.Fprintln(&b, strings.Join(facts, " | "))
	if len(v.Ranks) > 0 {
		fmt.Fprintf(&b, "\n%s", ranks(v))
	}
	if d := v.Decision; d != nil {
		fmt.Fprintf(&b, "last decision: step %d: %s\n", d.Step, change(d))
	}
	if n := len(v.Verdicts); n > 0 {
		last := v.Verdicts[n-1]
		fmt.Fprintf(&b, "bottleneck: %s\n", last.Text)
		if last.Bound != runtime.ComputeBound.String() {
			fmt.Fprintf(&b, "  advice: %s\n", last.Advice)
		}
	}
	for _, a := range slices.Backward(v.Alerts[max(0, len(v.Alerts)-mostAlerts):]) {
		if a.Kind != "bottleneck" { // the verdict above
			fmt.Fprintf(&b, "alert: step %d: %s\n", max(1, a.Step), a.Text)
		}
	}
	return b.String()
}

// first returns the newest record of rank 0, nil without records.
func first(v runs.View) *runtime.Record {
	if len(v.Ranks) == 0 {
		return nil
	}
	return v.Ranks[0].Record
}

// progress returns ", step 214 of 468 (46 %), 1m20s left".
func progress(v runs.View) string {
	if v.Last == 0 {
		return ""
	}
	text := fmt.Sprintf(", step %d", v.Last)
	if v.Length <= 0 {
		return text
	}
	text += fmt.Sprintf(" of %d (%.0f %%)", v.Length, 100*float64(v.Last)/float64(v.Length))
	if r := first(v); r != nil && v.State.Kind == runs.Running && v.Length > v.Last {
		left := time.Duration(v.Length-v.Last) * r.Took()
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return text
}

// ranks returns the table of ranks, in the form of the console's.
func ranks(v runs.View) string {
	var b strings.Builder
	number := func(p *float64, factor float64, format string) string {
		if p == nil {
			return show.Figure(format, show.NaN)
		}
		return show.Figure(format, factor**p)
	}
	fmt.Fprintf(&b, "[Load Balancer Status] step %d", v.Last)
	if d := v.Decision; d != nil {
		fmt.Fprintf(&b, " | %s, decision at step %d: imbalance %s | %s of the oracle (%s to %s)", d.Policy, d.Step, number(d.Imbalance, 100, "%.1f %%"), number(d.OfOracle, 100, "%.1f %%"), number(d.Low, 100, "%.1f"), number(d.High, 100, "%.1f"))
		var lost []string
		for _, cause := range []string{"imbalance", "communication", "data", "noise", "granularity"} {
			if p := d.Lost[cause]; p != nil {
				lost = append(lost, fmt.Sprintf("%s %.1f", cause, 1e3**p))
			}
		}
		if len(lost) > 0 {
			fmt.Fprintf(&b, " | time lost per step, ms: %s", strings.Join(lost, ", "))
		}
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "node\tuse %\tmemory %\tbatch\tsamples/s\tbusy ms\twait ms\tverdict\t\n")
	total := 0.0
	for _, k := range v.Ranks {
		if k.Record == nil {
			continue
		}
		r := k.Record
		total += r.Throughput()
		if k.Rank >= mostRows {
			continue
		}
		own := (r.DataLoading + r.Forward + r.Backward - r.Exchanges).Seconds()
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t\n", k.Rank, show.Figure("%.0f", r.Telemetry[telemetry.Utilization]), show.Figure("%.0f", r.Telemetry[telemetry.Memory]), r.BatchSize,
			show.Figure("%.0f", r.Throughput()), show.Figure("%.1f", 1e3*own), show.Figure("%.1f", 1e3*r.Communication.Seconds()), verdict(k))
	}
	w.Flush()
	if len(v.Ranks) > mostRows {
		fmt.Fprintf(&b, "… %d more ranks\n", len(v.Ranks)-mostRows)
	}
	fmt.Fprintf(&b, "Cluster Throughput: %s samples/s\n", show.Figure("%.0f", total))
	return b.String()
}

// verdict describes the balancer's verdict on a rank. The records call a rank "sick" that is slower than its step-time curve.
func verdict(k runs.RankView) string {
	if k.Health == "sick" {
		return fmt.Sprintf("slower than usual, cause: %s", k.Cause)
	}
	return k.Health
}

// change describes a decision: "95/33 to 96/32: …", or "shares stay 95/33: …".
func change(d *runs.Decision) string {
	list := func(shares []int) string {
		var parts []string
		for _, n := range shares[:min(len(shares), 16)] {
			parts = append(parts, fmt.Sprint(n))
		}
		if len(shares) > 16 {
			parts = append(parts, "…")
		}
		return strings.Join(parts, "/")
	}
	if !d.Changed {
		return fmt.Sprintf("shares stay %s: %s", list(d.Shares), d.Reason)
	}
	return fmt.Sprintf("%s to %s: %s", list(d.Shares), list(d.Next), d.Reason)
}
