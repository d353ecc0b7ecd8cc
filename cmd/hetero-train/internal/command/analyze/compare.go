package analyze

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/analysis/figures"
)

// sideBySide compares runs. Each element of dirs is a folder of a run or an address of a run in MLflow.
func (f *analyzeFlags) sideBySide(a *cli.App, cmd *cobra.Command, dirs []string) error {
	for _, other := range []string{"input-dir", "warmup-steps", "confidence", "replicates", "seed", "log-dir"} {
		if cmd.Flags().Changed(other) {
			return exit.Usagef("analyze --compare: --%s has no effect; runs are compared over all their steps", other)
		}
	}
	if len(dirs) < 2 {
		return exit.Usagef("analyze --compare: got %s, want the names or folders of at least 2 runs",
			show.Count(len(dirs), "run"))
	}
	output := f.output
	if !cmd.Flags().Changed("output-dir") {
		output = filepath.Join("experiments", "comparison")
	}
	var trials []*analysis.Trial
	for _, run := range dirs {
		dir, err := a.RunPath(run)
		if err != nil {
			return err
		}
		if filepath.Clean(dir) == filepath.Clean(output) {
			continue // an argument such as experiments/* also matches the output of an earlier comparison
		}
		t, err := analysis.ReadTrial(cmd.Context(), dir, a.Env.Environ)
		if err != nil && cmd.Context().Err() != nil {
			return fmt.Errorf("analyze --compare: %w", errors.Join(cmd.Context().Err(), err))
		}
		if server := new(analysis.ServerError); errors.As(err, &server) {
			return exit.With(exit.Communication, fmt.Errorf("analyze --compare: %w", err))
		}
		if err != nil {
			return exit.Usagef("analyze --compare: %w", err)
		}
		for _, text := range t.Damaged {
			a.WarnOf(dir + ": " + text)
		}
		trials = append(trials, t)
	}
	s, err := analysis.CompareTrials(trials)
	if err != nil {
		return exit.Usagef("analyze --compare: %w", err)
	}
	text, err := s.JSON()
	if err != nil {
		return err
	}
	if err := writeSideBySide(output, s, text); err != nil {
		return exit.With(exit.FolderCode(err), fmt.Errorf("analyze --compare: %w", err))
	}
	if f.json {
		_, err := a.Env.Stdout.Write(text)
		return err
	}
	if err := s.Print(a.Env.Stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Env.Stdout, "written: %s\n", filepath.Join(output, "report.md"))
	return err
}

// writeSideBySide writes the files of a comparison.
func writeSideBySide(dir string, s *analysis.SideBySide, text []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	drawn, err := figures.SideBySide(dir, s)
	if err != nil {
		return err
	}
	if err := experiment.ReplaceText(filepath.Join(dir, "comparison.json"), text); err != nil {
		return err
	}
	return experiment.ReplaceText(filepath.Join(dir, "report.md"), []byte(s.Report(drawn)))
}
