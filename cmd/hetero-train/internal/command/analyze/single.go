package analyze

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// sumUp prints a summary of each run.
func (f *analyzeFlags) sumUp(a *cli.App, cmd *cobra.Command, runs []string) error {
	for _, other := range []string{"input-dir", "output-dir", "warmup-steps", "confidence", "replicates", "seed"} {
		if cmd.Flags().Changed(other) {
			return exit.Usagef(
				"analyze: --%s has no effect if runs are given as arguments; it applies to comparisons of policies only",
				other)
		}
	}
	if f.logDir != "" && len(runs) > 1 {
		return exit.Usagef("analyze: --log-dir: got %s, want one run", show.Count(len(runs), "run"))
	}
	for i, run := range runs {
		dir, err := a.RunPath(run)
		switch {
		case err != nil && f.logDir == "":
			return err
		case err != nil:
			dir = run
		}
		if f.logDir == "" && !parts.IsFolder(dir) {
			return exit.Usagef("analyze: there is no folder %s", dir)
		}
		logs := f.logDir
		if logs == "" {
			var err error
			if logs, err = analysis.LogDir(dir); err != nil {
				return exit.Usagef("analyze %s: %w", dir, err)
			}
		}
		s, err := analysis.Summarize(dir, logs)
		if err != nil {
			return exit.Usagef("analyze %s: %w", dir, err)
		}
		if err := observe.WriteSummary(logs, s); err != nil {
			return exit.With(exit.FolderCode(err), fmt.Errorf("analyze %s: %w", dir, err))
		}
		for _, text := range s.Damaged {
			a.WarnOf(text)
		}
		if i > 0 {
			fmt.Fprintln(a.Env.Stdout)
		}
		rows := []observe.Row{{Name: "run", Value: fmt.Sprintf("%s, %s", s.Run, stateOf(s))}}
		rows = append(rows, observe.UseRows(s)...)
		rows = append(rows, observe.Row{Name: "final training loss", Value: show.Figure("%.4f", s.FinalTrainLoss)})
		if s.LastEval != nil {
			rows = append(rows, observe.Row{Name: "last evaluation", Value: evaluation(s.LastEval)})
		}
		if !math.IsNaN(float64(s.BestEval)) {
			rows = append(rows,
				observe.Row{Name: "best evaluation", Value: fmt.Sprintf("%s at step %d",
					task.TextOf(s.BestEvalMetric, float64(s.BestEval)), s.BestEvalStep)})
		}
		rate, unit := s.Rate()
		throughput := analysis.Digits(rate) + " " + unit + "/s"
		if of := s.Segment(); of != "" {
			throughput += " (" + of + ")"
		}
		rows = append(rows, observe.Row{Name: "time", Value: show.Duration(show.Seconds(float64(s.TrainingTime))) +
			" training"}, observe.Row{Name: "throughput", Value: throughput})
		rows = append(rows, observe.SummaryRows(s)...)
		fmt.Fprint(a.Env.Stdout,
			observe.Table(
				append(rows, observe.Row{Name: "written", Value: filepath.Join(logs, observe.SummaryFile) + ", " +
					observe.LatencyFile}), s))
	}
	return nil
}

// stateOf describes the state of the run, for example "finished after 300 steps".
func stateOf(s *analysis.Summary) string {
	text := fmt.Sprintf("%s after %d steps", s.Status, s.Steps)
	if s.Why != "" {
		text += " (" + show.Foreign(s.Why) + ")"
	}
	return text
}

// evaluation describes an evaluation, for example "top-1 71.20 %, loss 0.9120 at step 300".
func evaluation(e *experiment.ResultEvaluation) string {
	text := ""
	for _, m := range task.Recorded {
		if v, known := e.Metrics[m.Key]; known && m.Key != task.Loss.Key && !math.IsNaN(float64(v)) {
			text += m.Text(float64(v), 2) + ", "
		}
	}
	return text + fmt.Sprintf("loss %s at step %d", show.Figure("%.4f", e.Loss), e.Step)
}
