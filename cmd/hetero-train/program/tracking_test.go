package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

// pointsOf returns the steps of a metric in a folder with one run of MLflow.
func pointsOf(t *testing.T, runs, metric string) (steps []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runs, "*", "*", "metrics", metric))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: got files %q, %v, want one", metric, files, err)
	}
	for line := range strings.Lines(string(clitest.ReadFile(t, files[0]))) {
		fields := strings.Fields(line)
		step, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	return steps
}

// increasing fails the test unless each step is larger than the one before and the last one is last.
func increasing(t *testing.T, what string, steps []int, count, last int) {
	t.Helper()
	for i := 1; i < len(steps); i++ {
		if steps[i] <= steps[i-1] {
			t.Errorf("%s: step %d follows step %d", what, steps[i], steps[i-1])
		}
	}
	if len(steps) != count || len(steps) > 0 && steps[len(steps)-1] != last {
		t.Errorf("%s: got %d points up to %v, want %d up to %d", what, len(steps), steps[max(0, len(steps)-1):], count, last)
	}
}

// The server is down for the whole run. The run is complete, and its points are sent later, once.
func TestARunWithoutItsServerIsSentLater(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	down := "tracking.mlflow=http://" + porttest.Refusing(t)
	e := finish(t, p.command(dir, "train.steps=40", "tracking.interval=4", down, "tracking.flush_seconds=0.1"), 0)
	e.check(t, exit.Done, "MLflow cannot be reached; training continues")
	if !strings.Contains(e.stderr, "hetero-train tracking sync "+filepath.Join(dir, "run")) {
		t.Errorf("got %s, want the command that sends the rest", e.stderr)
	}
	run, runs := filepath.Join(dir, "run"), filepath.Join(dir, "mlruns")
	sync := func(code int, says string, args ...string) {
		t.Helper()
		finish(t, exec.Command(p.path, append([]string{"tracking", "sync"}, args...)...), 0).check(t, code, says)
	}
	sync(exit.Communication, "connection refused", run)
	for range 2 {
		sync(exit.Done, "", run, "--mlflow", runs)
		increasing(t, "train/loss", pointsOf(t, runs, "train/loss"), 11, 40) // 1, 4, 8, …, 40
		increasing(t, "eval/loss", pointsOf(t, runs, "eval/loss"), 1, 40)
	}
	for _, name := range []string{"configs/resolved.toml", "results/result.json", "results/results.md", "logs/summary.json"} {
		if files, err := filepath.Glob(filepath.Join(runs, "*", "*", "artifacts", name)); err != nil || len(files) != 1 {
			t.Errorf("%s: got %q, %v, want one file", name, files, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(runs, "*", "*", "params", "optimizer.name")); err != nil || len(files) != 1 || string(clitest.ReadFile(t, files[0])) != "adamw" {
		t.Errorf("optimizer.name: got %q, %v, want adamw", files, err)
	}
	sync(exit.Usage, "has no points for MLflow", filepath.Join(dir, "gone"))
	sync(exit.Usage, "want the folder of one run")
	sync(exit.Usage, "--mlflow", run, "--mlflow", "ftp://host")
}

// A run that is killed and resumed has each point once.
func TestAKilledRunHasEachPointOnce(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	runs := filepath.Join(dir, "mlruns")
	set := []string{"tracking.mlflow=" + runs, "tracking.interval=1", "train.log_interval=1", "checkpoint.interval_steps=7"}
	newest := func() int64 {
		step, _ := checkpoint.NewestStep(filepath.Join(dir, "run", "checkpoints"))
		return step
	}
	for range 3 {
		before, cmd := newest(), p.command(dir, append(set, "train.steps=2000000")...)
		finishAfterStep(t, cmd, func() {
			eventually(t, "another checkpoint", func() bool { return newest() > before })
			cmd.Process.Kill()
		})
	}
	e := finish(t, p.command(dir, append(set, "train.steps=2000000")...), syscall.SIGTERM)
	e.check(t, exit.Terminated, "")
	steps := pointsOf(t, runs, "train/loss")
	increasing(t, "train/loss", steps, steps[len(steps)-1], steps[len(steps)-1]) // all steps, from 1 on
	meta, err := filepath.Glob(filepath.Join(runs, "*", "*", "meta.yaml"))
	if err != nil || len(meta) != 1 || !strings.Contains(string(clitest.ReadFile(t, meta[0])), "\nstatus: 5\n") {
		t.Errorf("got runs %q, %v, want one with status 5 (killed)", meta, err)
	}
}

func TestFaultsOfTrackingSettings(t *testing.T) {
	p := buildProgram(t)
	for _, c := range []struct{ set, says string }{
		{"tracking.mlflow=ftp://host", "tracking.mlflow"},
		{"tracking.mlflow=http://me:s3cr3t@host", "tracking.mlflow: contains a password"},
		{"tracking.interval=0", "tracking.interval"},
	} {
		dir := t.TempDir()
		finish(t, p.command(dir, c.set, "train.steps=3"), 0).check(t, exit.Usage, c.says)
		if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
			t.Errorf("%s: the folder of the run exists, although the configuration is invalid", c.set)
		}
	}
}
