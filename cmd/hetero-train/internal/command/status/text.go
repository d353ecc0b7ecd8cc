package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Limits of the text.
const (
	mostRows   = 32 // largest number of ranks if the number of lines is not limited
	leastRows  = 4  // minimum number of ranks, even if fewer fit
	mostAlerts = 3
)

// Text formats a run for a terminal with this number of columns and lines. 0 means unlimited. Longer lines continue on
// further lines. The text shows as many ranks as fit, or up to mostRows if the height is unlimited.
//
// The table of ranks has priority over the lines about memory. If not all ranks fit, the text contains fewer lines
// about memory.
func Text(v runs.View, width, height int) string {
	if height == 0 {
		text, _ := textWith(v, append(memoryOf(v, mostRows), plansOf(v)...), width, height)
		return text
	}
	for n := min(ranksWithMemory(v), mostMemory); ; n-- {
		text, fits := textWith(v, memoryOf(v, n), width, height)
		if fits || n <= 1 {
			return text
		}
	}
}

// textWith formats a run with the given lines about memory. It reports whether all ranks and lines fit into the height.
func textWith(v runs.View, memory []string, width, height int) (text string, fits bool) {
	head, tail := headOf(v), append(memory, tailOf(v)...)
	var b strings.Builder
	above, below, hidden := wrapAll(head, width), wrapAll(tail, width), 0
	b.WriteString(above)
	if len(v.Ranks) > 0 {
		title := wrapAll(append([]string{""}, titleOf(v)), width)
		below = throughput(v) + below
		room := 0 // number of lines for the table; 0 means unlimited
		if height > 0 {
			const others = 2 // two more lines: the number of further ranks, and the line of the cursor
			room = max(height-others-strings.Count(above+title+below, "\n"), 1)
		}
		table, shown := fit(v.Ranks, width, room)
		if shown < len(v.Ranks) {
			table, shown = fit(urgentFirst(v.Ranks), width, room)
		}
		b.WriteString(title + strings.Join(table[:1+shown], ""))
		if hidden = len(v.Ranks) - shown; hidden > 0 {
			fmt.Fprintf(&b, "… %d more ranks\n", hidden)
		}
	}
	text = b.String() + below
	return text, hidden == 0 && strings.Count(text, "\n") < height
}

// fit formats the table of ranks. The result shown is the number of ranks that fit into room lines, but at least
// leastRows. If room is 0, it is at most mostRows.
func fit(ranks []runs.RankView, width, room int) (table []string, shown int) {
	shown = mostRows
	if room > 0 { // each rank needs at least one line
		shown = max(room, leastRows)
	}
	table, shown = tableOf(rowsOf(ranks), width), min(len(ranks), shown)
	for room > 0 && shown > leastRows && strings.Count(strings.Join(table[:1+shown], ""), "\n") > room {
		shown--
	}
	return table, shown
}

// urgentFirst sorts the ranks for a table that has no room for all. Ranks that are slower than usual or have no records
// come first. Otherwise, ranks with a longer compute time come first.
func urgentFirst(ranks []runs.RankView) []runs.RankView {
	urgent := func(k runs.RankView) int {
		if k.Health == "sick" || k.Missing {
			return 0
		}
		return 1
	}
	sorted := slices.Clone(ranks)
	slices.SortStableFunc(sorted, func(a, b runs.RankView) int {
		return cmp.Or(cmp.Compare(urgent(a), urgent(b)), cmp.Compare(b.BusySeconds, a.BusySeconds))
	})
	return sorted
}

// datasetOf returns the data set with which the run trains. After a fallback, this is not the data set in the settings.
func datasetOf(v runs.View) string {
	for _, e := range slices.Backward(v.Starts) {
		if e.Start != nil && e.Start.Dataset != "" {
			return e.Start.Dataset
		}
	}
	return v.Settings.Data.Dataset
}

// headOf returns the lines above the table of ranks.
func headOf(v runs.View) []string {
	lines := []string{fmt.Sprintf("%s: %s%s", v.Name, v.State.Kind, progress(v))}
	if v.State.Why != "" {
		lines = append(lines, v.State.Why)
	}
	if a := accountShown(v); a.Step > 0 {
		lines = append(lines, account.Sentence(a.Useful, a.Step, len(v.Ranks), v.State.Kind == runs.Running))
	}
	if v.Lacking != "" {
		lines = append(lines, v.Lacking)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Damaged)) {
		lines = append(lines, name+": "+v.Damaged[name])
	}
	for _, note := range v.Notes {
		lines = append(lines, "note: "+note)
	}
	if v.SegmentFrom > 1 {
		lines = append(lines,
			fmt.Sprintf("figures of ranks from step %d on, the first step with %s; figures of the whole run say so",
				v.SegmentFrom, show.Count(len(v.Ranks), "rank")))
	}
	facts := []string{}
	if v.Settings.Model.Name != "" {
		facts = append(facts, v.Settings.Model.Name+" on "+datasetOf(v))
	}
	if v.Settings.Balance.Policy != "" {
		facts = append(facts, "policy "+v.Settings.Balance.Policy)
	}
	if v.Precision != "" {
		facts = append(facts, v.Precision)
	}
	if r := first(v); r != nil {
		facts = append(facts, "loss "+show.Figure("%.4f", r.Values[telemetry.Loss]))
		if mean := float64(v.Totals.StepSeconds); v.Totals.Ended && mean > 0 {
			facts = append(facts, "mean step "+show.Figure("%.1f ms", 1e3*mean)+wholeRun(v))
		} else {
			facts = append(facts, fmt.Sprintf("step %d: %s", v.Common, show.Figure("%.1f ms", 1e3*r.Took().Seconds())))
		}
	}
	if seconds := float64(v.Totals.Seconds); seconds > 0 {
		facts = append(facts, "training time "+show.Figure("%.1f s", seconds)+wholeRun(v))
	}
	if n := len(v.Evals); n > 0 && v.Evals[n-1].Evaluation.Loss != nil {
		facts = append(facts, fmt.Sprintf("evaluation loss %.4f at step %d", *v.Evals[n-1].Evaluation.Loss,
			v.Evals[n-1].Step))
	}
	if len(facts) > 0 {
		lines = append(lines, strings.Join(facts, " | "))
	}
	return lines
}

// wholeRun returns a mark for numbers that belong to the whole run. It returns "" if the number of ranks has never
// changed, because all numbers then belong to the whole run.
func wholeRun(v runs.View) string {
	if v.SegmentFrom > 1 {
		return " (whole run)"
	}
	return ""
}

// tailOf returns the lines below the table and the memory.
func tailOf(v runs.View) (lines []string) {
	if d := v.Decision; d != nil {
		lines = append(lines, fmt.Sprintf("last decision: step %d: %s", d.Step, change(d)))
		lines = append(lines, outcomeOf(v)...)
	}
	lines = append(lines, bottleneckOf(v)...)
	for _, a := range slices.Backward(v.Alerts[max(0, len(v.Alerts)-mostAlerts):]) {
		if a.Kind != runs.BottleneckAlert { // the verdict above already contains these
			lines = append(lines, fmt.Sprintf("alert: step %d: %s", max(1, a.Step), a.Text))
		}
	}
	return lines
}

// bottleneckOf returns the lines about the bottleneck in the newest window. After the end of the run, the lines are
// about the whole run.
func bottleneckOf(v runs.View) (lines []string) {
	bound := ""
	if a := v.Account; a != nil && a.Verdict != "" {
		bound = a.Bound
		lines = append(lines, fmt.Sprintf("bottleneck: %s (steps %d to %d)", a.Verdict, a.From, a.To))
	} else if n := len(v.Verdicts); n > 0 {
		last := v.Verdicts[n-1]
		bound = last.Bound
		lines = append(lines,
			fmt.Sprintf("bottleneck: %s (steps %d to %d)", last.Text, max(1, last.NewestFrom), last.To))
	}
	if bound == runtime.ComputeBound.String() {
		return lines
	}
	for _, w := range slices.Backward(v.Verdicts) { // find the newest advice against this loss of time
		if w.Bound == bound && w.Advice != "" {
			return append(lines, "  advice: "+w.Advice)
		}
	}
	return lines
}

// outcomeOf returns the line of the newest change of shares whose outcome is known.
func outcomeOf(v runs.View) []string {
	for _, c := range slices.Backward(v.Changes) {
		if o := c.Outcome; o != nil && o.Achieved != nil {
			predicted := "unknown"
			if o.Predicted != nil {
				predicted = show.Figure("%.2f", *o.Predicted)
			}
			return []string{fmt.Sprintf("last change of shares: step %d: %s times faster, predicted %s", c.Step,
				show.Figure("%.2f", *o.Achieved), predicted)}
		}
	}
	return nil
}

// first returns the record of rank 0 in the step of the table, or nil if there are no records.
func first(v runs.View) *runtime.Record {
	if len(v.Ranks) == 0 {
		return nil
	}
	return v.Ranks[0].Record
}

// progress describes the progress of the run, for example ", step 214 of 468 (46 %), 1m20s left".
func progress(v runs.View) string {
	if v.Last == 0 {
		return ""
	}
	text := fmt.Sprintf(", step %d", v.Last)
	if v.Length <= 0 {
		return text
	}
	text += fmt.Sprintf(" of %d (%.0f %%)", v.Length, 100*float64(v.Last)/float64(v.Length))
	if step := float64(v.Speed.StepSeconds); step > 0 && v.State.Kind == runs.Running && v.Length > v.Last {
		left := show.Seconds(float64(v.Length-v.Last) * step)
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return text
}

// titleOf returns the title of the table of ranks, in the same form as on the console.
func titleOf(v runs.View) string {
	number := func(p *float64, factor float64, format string) string {
		if p == nil {
			return show.Figure(format, show.NaN)
		}
		return show.Figure(format, factor**p)
	}
	d := v.Decision
	if d == nil {
		return fmt.Sprintf("[Load Balancer Status] step %d", v.Common)
	}
	text := fmt.Sprintf("[Load Balancer Status] step %d | %s | imbalance %s", d.Step, d.Policy,
		number(d.Imbalance, 100, "%.1f %%"))
	switch {
	case d.OfOracle == nil && d.Unknown != "":
		text += " | fraction of the oracle unknown: " + d.Unknown
	default:
		text += fmt.Sprintf(" | %s of the oracle", number(d.OfOracle, 100, "%.1f %%"))
	}
	if d.Low != nil && d.High != nil {
		text += fmt.Sprintf(" (%s to %s)", number(d.Low, 100, "%.1f"), number(d.High, 100, "%.1f"))
	}
	if d.Differs != "" {
		text += "; " + d.Differs
	}
	if d.Equal != nil && d.Seconds != nil && *d.Seconds > 0 {
		low, high := show.NaN, show.NaN
		if d.EqualLow != nil && d.EqualHigh != nil {
			low, high = *d.EqualLow / *d.Seconds, *d.EqualHigh / *d.Seconds
		}
		text += " | " + account.GainText(*d.Equal / *d.Seconds, low, high)
	} else if d.EqualWhy != "" && d.EqualWhy != d.Unknown {
		text += " | gain over equal shares unknown: " + d.EqualWhy
	}
	if a := accountOf(d); a.Step > 0 {
		noisy := -1
		if d.Noisy != nil {
			noisy = *d.Noisy
		}
		text += " | a step: " + a.Text(noisy)
	}
	return text
}

// accountShown returns the account that the dashboard's page describes in its first sentence. While the run trains,
// this is the account of the newest window. Before the first window, it is the account of the newest decision. After
// the end of the run, it is the account of the summary. If there is none, the account is empty.
func accountShown(v runs.View) (a account.Account) {
	of := func(parts map[string]float64) func(string) float64 {
		return func(name string) float64 { return parts[name] }
	}
	if v.State.Kind != runs.Running {
		if s := v.Account; s != nil {
			a = account.Of(s.Seconds, of(s.Parts))
		}
		return a
	}
	if n := len(v.Verdicts); n > 0 && v.Verdicts[n-1].Seconds > 0 && v.Verdicts[n-1].Parts != nil {
		return account.Of(v.Verdicts[n-1].Seconds, of(v.Verdicts[n-1].Parts))
	}
	if v.Decision != nil {
		return accountOf(v.Decision)
	}
	return a
}

// accountOf returns the account of the times in a decision. The account is empty if the decision has no times.
func accountOf(d *runs.Decision) (a account.Account) {
	if d.Seconds == nil || d.Useful == nil {
		return a
	}
	return account.Of(*d.Seconds, func(name string) float64 {
		if name == "useful" {
			return *d.Useful
		}
		if p := d.Lost[name]; p != nil {
			return *p
		}
		return 0
	})
}

// rowsOf returns the table of ranks: the names of the columns, and a row for each rank. The last column is text. The
// numbers are the same as in the table on the console. Utilization and memory belong to the newest step.
func rowsOf(ranks []runs.RankView) [][]string {
	rows := [][]string{{"node", "use %", "memory %", "batch", "samples/s", "busy ms", "wait ms", "verdict"}}
	for _, k := range ranks {
		r := k.Record
		if r == nil {
			rows = append(rows, []string{strconv.Itoa(k.Rank), "-", "-", "-", "-", "-", "-", verdict(k)})
			continue
		}
		rows = append(rows, []string{strconv.Itoa(k.Rank), show.Figure("%.0f", r.Telemetry[telemetry.Utilization]),
			show.Figure("%.0f", r.Telemetry[telemetry.Memory]), show.Figure("%.0f", float64(k.Share)),
			analysis.Digits(float64(k.SamplesPerSecond)), show.Figure("%.1f", 1e3*float64(k.BusySeconds)),
			show.Figure("%.1f", 1e3*float64(k.WaitedSeconds)), verdict(k)})
	}
	return rows
}

// throughput returns the line with the throughput of all ranks. After the end of the run, this is the throughput of the
// whole run. Before, it is the throughput in the window of the table.
func throughput(v runs.View) string {
	value, of := float64(v.Totals.SamplesPerSecond), "whole run"
	if !v.Totals.Ended {
		value, of = float64(v.Speed.SamplesPerSecond), fmt.Sprintf("step %d", v.Common)
		if v.Speed.Decision > 0 {
			of = fmt.Sprintf("window of step %d", v.Speed.Decision)
		}
	}
	return fmt.Sprintf("Cluster Throughput: %s samples/s (%s)\n", analysis.Digits(value), of)
}

// verdict describes the balancer's verdict on a rank.
func verdict(k runs.RankView) string {
	if k.Missing {
		return "no records"
	}
	return show.Verdict(k.Health, k.Cause)
}

// change describes a decision, for example "95/33 to 96/32: …" or "shares stay 95/33: …".
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
