package observe

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// mostSummedUp is the maximum size of the records, in bytes, for which a run writes a summary at its end. With a larger
// limit, the summary could take longer than a scheduler waits for the process to end.
const mostSummedUp = 512 << 20

// SumUp writes the summary of the run and prints its results. A failure is only a warning, because the run is already
// saved.
func (o *Records) SumUp(screen *Console, r train.Result) {
	a := o.run
	warn := func(err error) {
		if err != nil {
			a.Process.Opts.LogOf(logs.ComponentProfiler).Warn("the run has no summary", "error", err)
		}
	}
	var s *analysis.Summary
	if len(o.writers) > 0 && r.Steps > 0 {
		bytes := int64(0)
		o.each((*runtime.Writer).Flush)
		for rank := range o.writers {
			if info, err := os.Stat(filepath.Join(a.Folder.LogDir(), runtime.FileName(rank))); err == nil {
				bytes += info.Size()
			}
		}
		if bytes > mostSummedUp {
			os.Remove(filepath.Join(a.Folder.LogDir(), SummaryFile)) // the summary of an earlier process is out of date
			a.Process.Opts.LogOf(logs.ComponentProfiler).Info(
				"the summary is not written now, because the records are large: run hetero-train analyze " +
					a.Folder.Dir)
		} else {
			var err error
			if s, err = analysis.Summarize(a.Folder.Dir, a.Folder.LogDir()); err == nil {
				err = WriteSummary(a.Folder.LogDir(), s)
			}
			warn(err)
		}
	}
	if r.Steps == 0 || r.Samples == 0 {
		return
	}
	rows := slices.Concat(UseRows(s), screen.results(r), SummaryRows(s))
	rows = append(rows, Row{"files", filesOf(a, s)})
	screen.Log(strings.TrimSuffix(Table(rows, s), "\n"), "results", "folder", a.Folder.Dir, "logs", a.Folder.LogDir(),
		"table", filepath.Join(a.Folder.Dir, "results", "results.md"))
	warn(a.Folder.WriteTable(markdown(a.Folder.Name, rows, s)))
}

// filesOf returns lines with the paths of the run's files.
func filesOf(a *assembly.Run, s *analysis.Summary) string {
	if s == nil {
		return a.Folder.Dir
	}
	return fmt.Sprintf("%s (%s, %s)", a.Folder.Dir, filepath.Join(a.Folder.LogDir(), SummaryFile),
		filepath.Join(a.Folder.Dir, "results", "results.md"))
}

// Row is a row of the table of results.
type Row struct{ Name, Value string }

// results returns the rows whose values this process knows without reading records.
func (c *Console) results(r train.Result) []Row {
	trainedOn, report := c.run.Data.Name, c.run.Report()
	if c.run.Data.Note != "" {
		trainedOn += " instead of " + c.run.Process.Cfg.Data.Dataset
	}
	rows := []Row{
		{"data", trainedOn}, {"final training loss",
			fmt.Sprintf("%s after %d steps, %.2f epochs", show.Figure("%.4f", r.LastLoss), r.Steps, r.Epochs)}}
	eval := func(e *train.Evaluation) string {
		return fmt.Sprintf("%s, loss %.4f at step %d", strings.Join(report.Texts(e.Score(), 2), ", "), e.Loss, e.Step)
	}
	if c.lastEval != nil {
		rows = append(rows, Row{"last evaluation", eval(c.lastEval)})
	}
	switch b := r.Best; {
	case b == nil:
	case c.bestEval != nil && c.bestEval.Step == b.Step:
		rows = append(rows, Row{"best evaluation", eval(c.bestEval)})
	default: // an earlier process made the evaluation
		rows = append(rows,
			Row{"best evaluation", fmt.Sprintf("%s at step %d", task.TextOf(b.Metric, float64(b.Value)), b.Step)})
	}
	if r.Skipped > 0 || r.RollBacks > 0 {
		rows = append(rows,
			Row{
				"skipped",
				fmt.Sprintf("steps with NaN or Inf in the gradient: %d; rollbacks to an earlier checkpoint: %d",
					r.Skipped, r.RollBacks)})
	}
	whole := time.Since(c.run.Process.Started)
	speed := func(samples int64, took time.Duration) string {
		return analysis.Digits(show.PerSecond(samples*int64(report.Units), took)) + " " + report.Unit + "/s"
	}
	took, throughput := fmt.Sprintf("%s training of %s", show.Duration(r.TrainTime), show.Duration(whole)),
		speed(r.Trained.Samples, r.Trained.Time)
	if r.Trained.Samples != r.Samples { // earlier processes trained a part of the run, or the run repeated steps
		took = fmt.Sprintf("%s training; in this process %s", show.Duration(r.Trained.Time), took)
		throughput += "; in this process " + speed(r.Samples, r.TrainTime)
	}
	if first := r.Steps - r.Trained.Steps + 1; first > 1 { // the steps before belong to another run
		took = fmt.Sprintf("from step %d: %s", first, took)
		throughput = fmt.Sprintf("from step %d: %s", first, throughput)
	}
	rows = append(rows, Row{"time", took}, Row{"throughput", throughput})
	if c.peak > 0 && r.TrainTime > 0 {
		flops := float64(c.run.Replica.FLOPs())
		steps := float64(r.Samples) / float64(c.run.Process.Cfg.Data.BatchSize)
		what := "fraction of peak"
		if c.run.Rank.Team != nil {
			what += ", rank 0"
		}
		rows = append(rows,
			Row{what, fmt.Sprintf("%.1f %% of %.0f GFLOP/s", 100*flops*steps/r.TrainTime.Seconds()/c.peak, c.peak/1e9)})
	}
	return rows
}

// UseRows returns the first row of the table, which has the same text as the first sentence on the dashboard. It
// returns no row if the summary has no bottleneck.
func UseRows(s *analysis.Summary) []Row {
	if s == nil || s.Bottleneck == nil {
		return nil
	}
	text := account.Sentence(float64(s.Bottleneck.Parts.Useful), float64(s.Bottleneck.Step), s.Ranks, false)
	if text == "" {
		return nil
	}
	return []Row{{"useful work", text}}
}

// SummaryRows returns the rows whose values come from the records of the whole run.
func SummaryRows(s *analysis.Summary) []Row {
	if s == nil {
		return nil
	}
	rows := []Row{}
	if of := s.Segment(); of != "" {
		rows = append(rows, Row{"figures below", fmt.Sprintf("%s, with %s; the run had another number of ranks before",
			of, show.Count(s.Ranks, "rank"))})
	}
	rows = append(rows,
		Row{"step time", fmt.Sprintf("mean %s, p50 %s, p99 %s", ms(s.StepTime.Mean), ms(s.StepTime.P50),
			ms(s.StepTime.P99))},
		Row{"parts of a step", partsOf(s.StepParts)})
	if s.Bottleneck != nil {
		rows = append(rows, Row{"time of a step", fmt.Sprintf("%s (without the first %d steps)", s.Bottleneck.Account,
			runtime.WarmUpSteps)}, Row{"bottleneck", s.Bottleneck.Verdict})
	}
	if s.Ranks > 1 {
		rows = append(rows, Row{"communication", communication(s)})
		balance := "fraction of the oracle unknown: the balancer made no decision on measured times; load imbalance " +
			show.Figure("%.1f %%", 100*s.Imbalance)
		if !math.IsNaN(float64(s.ShareOfOracle)) {
			why := ""
			if s.ShareOfOracleDisagreement != "" {
				why = " (" + s.ShareOfOracleDisagreement + ")"
			}
			balance = fmt.Sprintf("%s of the oracle (step time with the best shares / step time with the actual shares, without noise), %.1f %% (%s to %s) at the end%s%s, load imbalance %s",
				show.Figure("%.1f %%", 100*s.ShareOfOracleMean), 100*float64(s.ShareOfOracle),
				show.Figure("%.1f", 100*s.ShareOfOracleLow), show.Figure("%.1f", 100*s.ShareOfOracleHigh), why,
				faster(s), show.Figure("%.1f %%", 100*s.Imbalance))
		}
		rows = append(rows, Row{"balance", balance})
		if gain := float64(s.Gain); gain == gain {
			rows = append(rows,
				Row{"gain",
					fmt.Sprintf("%s, on the measured step-time curves, over %.0f %% of the steps",
						account.GainText(gain, float64(s.GainLow), float64(s.GainHigh)), 100*s.GainPart)})
		} else if s.GainUnknown != "" {
			rows = append(rows, Row{"gain", "unknown: " + s.GainUnknown})
		}
	}
	if text := slowRanks(s); text != "" {
		rows = append(rows, Row{"slow ranks", text})
	}
	if !math.IsNaN(float64(s.MemoryUtilization)) {
		rows = append(rows, Row{"memory", show.Figure("%.1f %% at its peak", 100*s.MemoryUtilization)})
	}
	return rows
}

// faster returns a text with the speed-up that the best shares would have given at the end of the run. It returns ""
// for a small speed-up.
func faster(s *analysis.Summary) string {
	const worthNaming = 0.95 // fraction of the oracle
	if of := float64(s.ShareOfOracle); of > 0 && of < worthNaming {
		return fmt.Sprintf(": the best shares would make steps %.2f times faster", 1/of)
	}
	return ""
}

// communication returns the text about the time for which ranks wait in communication. The text also states which part
// of this time is a wait for slower ranks. The bottleneck counts only the rest as lost to communication.
func communication(s *analysis.Summary) string {
	gradients, exchanges := s.StepParts.Communication, s.StepParts.Exchanges
	text := ms(gradients) + " per step spent waiting for gradients"
	if exchanges > 0 {
		text += fmt.Sprintf(", %s in exchanges of batch normalisation", ms(exchanges))
	}
	if s.Bottleneck != nil {
		text += fmt.Sprintf(" (including %s waiting for slower ranks)",
			ms(max(0, gradients+exchanges-s.Bottleneck.Parts.Communication)))
	}
	return fmt.Sprintf("%s; %s hidden behind the backward pass (overlap %s), bus bandwidth %s GB/s", text,
		ms(s.CommunicationHidden), show.Figure("%.0f %%", 100*s.Overlap), show.Figure("%.2f", s.BusBandwidth/1e9))
}

// partsOf returns the fraction of the step time that each part takes.
func partsOf(p analysis.StepParts) string {
	total := p.Data + p.Forward + p.Backward + p.Communication + p.Optimizer + p.Between
	part := func(name string, v analysis.Number) string {
		return name + " " + show.Figure("%.1f %%", 100*v/total)
	}
	backward := part("backward", p.Backward)
	if p.Exchanges > 0 {
		backward += " (forward and backward include " + part("exchanges of batch normalisation:", p.Exchanges) + ")"
	}
	return strings.Join([]string{part("data", p.Data), part("forward", p.Forward), backward,
		part("communication", p.Communication), part("optimizer", p.Optimizer),
		part("between the parts", p.Between)}, ", ")
}

func ms(v analysis.Number) string { return show.Figure("%.4g ms", 1e3*v) }

// rankColumns are the columns of the table of ranks.
var rankColumns = []struct {
	name  string
	value func(*analysis.RankSummary) string
}{
	{"rank", func(r *analysis.RankSummary) string { return fmt.Sprint(r.Rank) }},
	{"batch", func(r *analysis.RankSummary) string { return show.Figure("%.1f", r.Samples) }},
	{"samples/s", func(r *analysis.RankSummary) string { return analysis.Digits(r.SamplesPerSecond) }},
	{"busy ms", func(r *analysis.RankSummary) string { return show.Figure("%.1f", 1e3*r.Compute) }},
	{"wait ms", func(r *analysis.RankSummary) string { return show.Figure("%.1f", 1e3*r.StepParts.Communication) }},
	{"step p99 ms", func(r *analysis.RankSummary) string { return show.Figure("%.1f", 1e3*r.StepTime.P99) }},
	{"use %", func(r *analysis.RankSummary) string { return show.Figure("%.0f", 100*r.Utilization) }},
	{"memory %", func(r *analysis.RankSummary) string { return show.Figure("%.0f", 100*r.MemoryUtilization) }},
	{"verdict", func(r *analysis.RankSummary) string { return newestVerdict(&r.RankVerdicts) }},
}

// mostRows is the maximum number of ranks in the table. summary.json contains all ranks.
const mostRows = 32

// ranksOf returns the cells of the table of ranks. It returns no cells for a run of one rank.
func ranksOf(s *analysis.Summary) (cells [][]string) {
	if s == nil || len(s.PerRank) < 2 {
		return nil
	}
	var head []string
	for _, c := range rankColumns {
		head = append(head, c.name)
	}
	cells = append(cells, head)
	for i := range s.PerRank[:min(len(s.PerRank), mostRows)] {
		var line []string
		for _, c := range rankColumns {
			line = append(line, c.value(&s.PerRank[i]))
		}
		cells = append(cells, line)
	}
	return cells
}

// Table formats the results for a terminal or a log.
func Table(rows []Row, s *analysis.Summary) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "  %s\t%s\n", r.Name, r.Value)
	}
	w.Flush()
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range ranksOf(s) {
		fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
	}
	w.Flush()
	return b.String()
}

// markdown formats the results for results/results.md.
func markdown(name string, rows []Row, s *analysis.Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n| | |\n|---|---|\n", name)
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |\n", cell.Replace(r.Name), cell.Replace(r.Value))
	}
	for i, line := range ranksOf(s) {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintln(&b, strings.Repeat("|---:", len(line))+"|")
		}
	}
	return b.String()
}
