package analyze

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/analysis/figures"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

const analyzeLong = `Summarize single runs, compare runs side by side, or compare balancing policies across many runs.

RUN is the name of a run in the folder experiments, or the folder of a run, which has ended or was killed. For each RUN, the command reads the records on disk, writes logs/summary.json and
logs/latency_histogram.png, and prints the results. A run itself also does this at its end.

With --compare, the command prints the runs side by side: their results, speed, mean fraction of the oracle and cost, and the settings
that differ, which legends of figures show, too. RUN is then also a run of MLflow: its folder in a file store (with meta.yaml), the address of its page on a server, or
http://HOST:PORT#EXPERIMENT/RUN with names. MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, are
the credentials. A run may still be running. The command writes report.md, comparison.json, and figures of all curves (*.png, *.svg)
into --output-dir, by default experiments/comparison. --json prints comparison.json in place of the tables.

Without a RUN, the command reads all runs below --input-dir, whether scripts/run_benchmark.sh or another command made them. It
compares runs that differ only in policy and seed, prints a table, and writes these files into --output-dir:

  report.md                  setup, tables, figures and method, ready for a paper
  five_figures.md            four unequal ranks: the five figures of each policy, measured and expected
  summary.csv                every value with its confidence interval, one row per policy
  <comparison>/*.png, *.svg  throughput, speed-up, utilization, scaling efficiency, load imbalance, speed relative to the
                             oracle (the best shares), loss over steps and time, shares over time
  <comparison>/steps/*.csv   values of every step, one file per run

Exit codes:
  0  done
  2  bad flags, missing folder or run, no runs to compare, or runs that cannot be compared
  5  an MLflow server cannot be reached or refuses the request
  7  output cannot be written`

// New returns the command that compares or summarizes finished runs.
func New(a *cli.App) *cobra.Command {
	f := new(analyzeFlags)
	cmd := &cobra.Command{
		Use:   "analyze [RUN...]",
		Short: "Summarize a run, or compare runs or balancing policies",
		Long:  analyzeLong,
		Example: `  hetero-train analyze experiments/resnet50
  hetero-train analyze --compare experiments/a experiments/b mlruns/1/0123456789abcdef0123456789abcdef
  hetero-train analyze --compare experiments/a "http://127.0.0.1:5000#resnet/baseline"
  hetero-train analyze
  hetero-train analyze --input-dir experiments/benchmarks --output-dir experiments/analysis
  hetero-train analyze --warmup-steps 50 --confidence 0.99`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input-dir", filepath.Join("experiments", "benchmarks"),
		"`folder` that contains the runs, at any depth")
	flags.StringVar(&f.output, "output-dir", filepath.Join("experiments", "analysis"),
		"`folder` for tables and figures; replaces the files of an earlier analysis")
	flags.Int64Var(&f.options.WarmUpSteps, "warmup-steps", -1,
		"number of `steps` to skip at the start of each run; -1: one fifth of the run, at least 30")
	flags.Float64Var(&f.options.Confidence, "confidence", 0.95, "confidence `level` of the intervals, between 0 and 1")
	flags.IntVar(&f.options.Replicates, "replicates", 2000, "number of bootstrap `draws` for the intervals")
	flags.Uint64Var(&f.options.Seed, "seed", 1, "`seed` of the bootstrap; the same seed gives the same intervals")
	flags.StringVar(&f.logDir, "log-dir", "", "`folder` of the logs, if the logs of a single run were moved")
	flags.BoolVar(&f.compare, "compare", false, "compare the given runs side by side")
	flags.BoolVar(&f.json, "json", false, "with --compare: print one JSON object on one line of standard output")
	cmd.RunE = func(cmd *cobra.Command, runs []string) error {
		if err := f.options.Check(); err != nil {
			return exit.Usagef("analyze: %w", err)
		}
		if f.options.WarmUpSteps < -1 {
			return exit.Usagef("analyze: --warmup-steps: got %d, want -1 or more", f.options.WarmUpSteps)
		}
		if f.compare {
			return f.sideBySide(a, cmd, runs)
		}
		if f.json {
			return exit.Usagef(
				"analyze: --json needs --compare; without it, logs/summary.json of the run has the results as JSON")
		}
		if len(runs) > 0 {
			return f.sumUp(a, cmd, runs)
		}
		return f.run(a)
	}
	return cmd
}

func (f *analyzeFlags) run(a *cli.App) error {
	runs, err := analysis.Read(f.input)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.NoRuns("analyze", f.input)
	}
	if err != nil {
		return exit.Usagef("analyze: %w", err)
	}
	study, err := analysis.Compare(runs, f.options)
	if err != nil {
		return exit.Usagef("analyze: %w", err)
	}
	if len(study.Comparisons) == 0 {
		return exit.Usagef("analyze: %s", nothingToCompare(study))
	}
	if err := study.Print(a.Env.Stdout); err != nil {
		return err
	}
	if err := f.write(study); err != nil {
		return exit.With(exit.FolderCode(err), fmt.Errorf("analyze: %w", err))
	}
	for _, text := range study.Damaged {
		a.WarnOf(text)
	}
	for _, s := range study.Skipped {
		a.WarnOf(fmt.Sprintf("skip %s: %s", s.Dir, s.Reason))
	}
	fmt.Fprintf(a.Env.Stdout, "written: %s\n", filepath.Join(f.output, "report.md"))
	return nil
}

// nothingToCompare returns a text that says why a folder contains nothing to compare, and what the user can do.
func nothingToCompare(study *analysis.Study) string {
	if logs, err := analysis.LogDir(study.Root); err == nil && parts.Exists(filepath.Join(logs, runtime.FileName(0))) {
		return fmt.Sprintf("%s is a single run; use hetero-train analyze %s", study.Root, study.Root)
	}
	text := fmt.Sprintf("no runs to compare in %s: ", study.Root)
	if len(study.Skipped) == 0 {
		text +=
			"the folder contains no finished run (a run's folder has results/result.json and logs/rank_0_metrics.json)"
	} else {
		text += fmt.Sprintf("%d folders with runs cannot be used (%s)", len(study.Skipped),
			strings.Join(analysis.Causes(study.Skipped), "; "))
	}
	return text + "; hetero-train train makes runs, and completes interrupted runs if it is repeated"
}

// write writes the results to files in the output folder.
func (f *analyzeFlags) write(study *analysis.Study) error {
	drawn := map[string][]analysis.Figure{}
	for _, c := range study.Comparisons {
		dir := filepath.Join(f.output, c.ID)
		if err := os.MkdirAll(filepath.Join(dir, "steps"), 0o755); err != nil {
			return err
		}
		var err error
		if drawn[c.ID], err = figures.Comparison(dir, c); err != nil {
			return err
		}
		for _, p := range c.Policies {
			for _, run := range p.Runs {
				text, err := run.StepsCSV()
				if err == nil {
					err = experiment.ReplaceText(filepath.Join(dir, "steps", run.Name+".csv"), []byte(text))
				}
				if err != nil {
					return err
				}
			}
		}
	}
	overview, err := figures.Overview(f.output, study.Comparisons)
	if err != nil {
		return err
	}
	summary, err := study.SummaryCSV()
	if err != nil {
		return err
	}
	if err := experiment.ReplaceText(filepath.Join(f.output, "summary.csv"), []byte(summary)); err != nil {
		return err
	}
	if table := study.FiveFigures(); table != "" {
		if err := experiment.ReplaceText(filepath.Join(f.output, "five_figures.md"), []byte(table)); err != nil {
			return err
		}
	}
	return experiment.ReplaceText(filepath.Join(f.output, "report.md"), []byte(study.Report(drawn, overview)))
}
