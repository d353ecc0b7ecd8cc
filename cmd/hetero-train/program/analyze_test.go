package program

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/profiler/analysis"
)

func TestAnalyzeSaysWhyThereIsNothingToCompare(t *testing.T) {
	empty, unfinished := t.TempDir(), t.TempDir()
	run := filepath.Join(unfinished, "killed", "configs")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(run, "resolved.toml")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--input-dir", empty}, "no runs to compare in " + empty + ": the folder contains no finished run"},
		{[]string{"--input-dir", empty}, "scripts/run_benchmark.sh makes runs"},
		{[]string{"--input-dir", unfinished}, "1 folders with runs cannot be used (1: not finished: it has no results/result.json)"},
		{[]string{"--input-dir", filepath.Join(empty, "none")}, "there is no folder"},
		{[]string{"--input-dir", file}, "is a file, want the folder that holds the runs"},
		{[]string{"--inputdir", empty}, "unknown flag: --inputdir"},
		{[]string{"now"}, "--output-dir has no effect if runs are given as arguments; it applies to comparisons of policies only"},
		{[]string{"--set", "train.epochs=3"}, "analyze reads finished runs"},
		{[]string{"--confidence", "95"}, "confidence: got 95, want a number above 0 and below 1"},
		{[]string{"--replicates", "5"}, "got 5, want 100 to 1000000"},
		{[]string{"--warmup-steps", "-2"}, "--warmup-steps: got -2, want -1 or more"},
	} {
		output := filepath.Join(t.TempDir(), "analysis")
		o := execute(append([]string{"analyze", "--output-dir", output}, c.args...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("%v: got exit code %d, %q and %q, want 2 and %q", c.args, o.code, o.stdout, o.stderr, c.says)
		}
		if parts.Exists(output) {
			t.Errorf("%v: the output folder was made", c.args)
		}
	}
}

func TestAnalyzeOfARunRefusesWhatHasNoEffect(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{filepath.Join(dir, "none")}, "there is no folder " + filepath.Join(dir, "none")},
		{[]string{dir, "--confidence", "2"}, "confidence: got 2, want a number above 0 and below 1"},
		{[]string{dir, "--confidence", "0.9"}, "--confidence has no effect if runs are given as arguments"},
		{[]string{dir, "--warmup-steps", "-7"}, "--warmup-steps: got -7, want -1 or more"},
		{[]string{dir, "--seed", "3"}, "--seed has no effect if runs are given as arguments"},
	} {
		if o := execute(append([]string{"analyze"}, c.args...)); o.code != exit.Usage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
	// a folder that does not exist, in place of one that is not writable
	err := observe.WriteSummary(filepath.Join(dir, "none"), new(analysis.Summary))
	if err == nil || strings.Contains(err.Error(), "remove") {
		t.Errorf("got %v, want only why it cannot be written", err)
	}
}

// Command analyze must read the files that training writes.
func TestAnalyzeComparesRunsOfTheProgram(t *testing.T) {
	p := buildProgram(t)
	root := t.TempDir()
	runs, output := filepath.Join(root, "runs"), filepath.Join(root, "analysis")
	for _, policy := range []string{"none", "hybrid"} {
		if out, err := p.command(runs, "experiment.name="+policy, "balance.policy="+policy, "train.steps=60", "checkpoint.interval_steps=0").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// Files must be replaced and not overwritten, so that a reader with an open file can read the old content to its
	// end.
	former := []string{"report.md", "summary.csv"}
	if err := os.Mkdir(output, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range former {
		if err := os.WriteFile(filepath.Join(output, name), []byte("former"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(output, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	o := execute([]string{"analyze", "--input-dir", runs, "--output-dir", output})
	for _, name := range former {
		if got := string(clitest.ReadFile(t, filepath.Join(root, name))); got != "former" {
			t.Errorf("the former %s: got %q", name, got)
		}
	}
	if o.code != exit.Done || !strings.Contains(o.stdout, "simple_cnn on synthetic_image, scenario ranks-1, ranks 1, global batch 8") || !strings.Contains(o.stdout, "hybrid") {
		t.Fatalf("got exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
	report := string(clitest.ReadFile(t, filepath.Join(output, "report.md")))
	for line := range strings.Lines(report) { // every figure must appear in the report
		_, rest, ok := strings.Cut(line, "](")
		name, _, _ := strings.Cut(rest, ")")
		if !ok || !strings.HasSuffix(name, ".png") {
			continue
		}
		file, err := os.Open(filepath.Join(output, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := png.Decode(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		file.Close()
	}
	if !strings.Contains(report, "throughput.png") || !strings.Contains(string(clitest.ReadFile(t, filepath.Join(output, "summary.csv"))), ",hybrid,1,42,") {
		t.Errorf("report:\n%s", report)
	}
	blocked := filepath.Join(output, "report.md", "analysis") // a path below a regular file
	if o := execute([]string{"analyze", "--input-dir", runs, "--output-dir", blocked}); o.code != exit.Usage || !strings.Contains(o.stderr, "report.md") {
		t.Errorf("output that cannot be written: got exit code %d and %q", o.code, o.stderr)
	}
}
