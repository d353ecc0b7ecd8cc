package program

import (
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

// One run ends, one is interrupted, and the summary of another one is made from its records alone. Each summary must be
// next to the logs.
func TestARunIsSummedUpWhereItsLogsAre(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	moved := filepath.Join(dir, "moved")
	for _, c := range []struct {
		name, logs, status string
		set                []string
		code               int
		interrupt          bool
	}{
		{"done", filepath.Join(dir, "done", "logs"), "finished", []string{"train.steps=30"}, exit.Done, false},
		{"elsewhere", moved, "finished", []string{"train.steps=30", "experiment.log_dir=" + moved}, exit.Done, false},
		{"stopped", filepath.Join(dir, "stopped", "logs"), "stopped",
			[]string{"train.steps=1000000", "train.log_interval=1"}, exit.Interrupted, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := p.command(dir, append(c.set, "experiment.name="+c.name)...)
			got := finishAfterStep(t, cmd, func() {
				if c.interrupt {
					cmd.Process.Signal(os.Interrupt)
				}
			})
			got.check(t, c.code, "")
			s := readSummary(t, c.logs)
			if s.Status != c.status || s.Ranks != 1 || s.RecordedSteps != s.Steps || !(s.Throughput > 0) ||
				!strings.Contains(got.stdout, "final training loss") {
				t.Errorf("got %+v and\n%s", s, got.stdout)
			}
			table := string(clitest.ReadFile(t, filepath.Join(dir, c.name, "results", "results.md")))
			if !strings.HasPrefix(table, "# "+c.name+"\n") || !strings.Contains(table, "| parts of a step | data ") {
				t.Errorf("results.md:\n%s", table)
			}
			if err := os.Remove(filepath.Join(c.logs, observe.SummaryFile)); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if code := runLine(context.Background(), []string{"analyze", filepath.Join(dir, c.name)},
				session.Environment{Stdout: &out, Stderr: &errs}); code != exit.Done {
				t.Fatalf("analyze: got exit code %d\n%s", code, errs.String())
			}
			if again := readSummary(t, c.logs); again.Throughput != s.Throughput || again.Status != c.status ||
				!strings.Contains(out.String(), c.name) {
				t.Errorf("analyze: got %+v, want %+v\n%s", again, s, out.String())
			}
		})
	}
}

// readSummary reads the summary of a run. It also checks that the folder of log files contains the figure.
func readSummary(t *testing.T, logs string) (s analysis.Summary) {
	t.Helper()
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(logs, observe.SummaryFile)), &s); err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(
		bytes.NewReader(clitest.ReadFile(t, filepath.Join(logs, observe.LatencyFile)))); err != nil {
		t.Errorf("%s: %v", observe.LatencyFile, err)
	}
	return s
}

func TestAnalyzeSaysWhatItCannotSumUp(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"analyze", t.TempDir()}, "no metric records"},
		{[]string{"analyze", "a", "b", "--log-dir", "logs"}, "got 2 runs, want one"},
		{[]string{"analyze", "a", "--input-dir", "b"}, "--input-dir has no effect if runs are given as arguments"},
	} {
		var out, errs bytes.Buffer
		if code := runLine(context.Background(), c.args, session.Environment{
			Stdout: &out, Stderr: &errs}); code != exit.Usage || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: got exit code %d and %q, want %q", c.args, code, errs.String(), c.says)
		}
	}
}
