package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// pointsOf returns the steps of a metric in a folder that contains one run of MLflow.
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

// increasing fails the test unless steps has count entries, each larger than the one before, and ends with last.
func increasing(t *testing.T, what string, steps []int, count, last int) {
	t.Helper()
	for i := 1; i < len(steps); i++ {
		if steps[i] <= steps[i-1] {
			t.Errorf("%s: step %d follows step %d", what, steps[i], steps[i-1])
		}
	}
	if len(steps) != count || len(steps) > 0 && steps[len(steps)-1] != last {
		t.Errorf("%s: got %d points up to %v, want %d up to %d", what, len(steps), steps[max(0, len(steps)-1):], count,
			last)
	}
}

// The tracking server is down during the whole run. The run must complete, and must send each point later, exactly
// once.
func TestARunWithoutItsServerIsSentLater(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	down := "tracking.mlflow=http://" + porttest.Refusing(t)
	e := finish(t, p.command(dir, "train.steps=40", "tracking.interval=4", down, "tracking.flush_seconds=0.1"), 0)
	e.check(t, exit.Done, "MLflow does not take points; training continues")
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
		increasing(t, "train/loss", pointsOf(t, runs, "train/loss"), 11, 40) // at steps 1, 4, 8, …, 40
		increasing(t, "eval/loss", pointsOf(t, runs, "eval/loss"), 1, 40)
	}
	for _, name := range []string{"configs/resolved.toml", "results/result.json", "results/results.md",
		"logs/summary.json"} {
		if files, err := filepath.Glob(filepath.Join(runs, "*", "*", "artifacts", name)); err != nil ||
			len(files) != 1 {
			t.Errorf("%s: got %q, %v, want one file", name, files, err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(runs, "*", "*", "params", "optimizer.name")); err != nil ||
		len(files) != 1 || string(clitest.ReadFile(t, files[0])) != "adamw" {
		t.Errorf("optimizer.name: got %q, %v, want adamw", files, err)
	}
	sync(exit.Usage, "has no points for MLflow", filepath.Join(dir, "gone"))
	sync(exit.Usage, "want the folder of one run")
	sync(exit.Usage, "--mlflow", run, "--mlflow", "ftp://host")
}

// After a run was killed and resumed, each point must exist exactly once.
func TestAKilledRunHasEachPointOnce(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	runs := filepath.Join(dir, "mlruns")
	set := []string{"tracking.mlflow=" + runs, "tracking.interval=1", "train.log_interval=1",
		"checkpoint.interval_steps=7"}
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
	increasing(t, "train/loss", steps, steps[len(steps)-1], steps[len(steps)-1]) // all steps, beginning with 1
	meta, err := filepath.Glob(filepath.Join(runs, "*", "*", "meta.yaml"))
	if err != nil || len(meta) != 1 || !strings.Contains(string(clitest.ReadFile(t, meta[0])), "\nstatus: 5\n") {
		t.Errorf("got runs %q, %v, want one with status 5 (killed)", meta, err)
	}
}

// All reports must derive speed from the same times: results, summary, comparison with the records, and comparison with
// the points of MLflow. Between two points, the run has evaluations, checkpoints and a resume.
func TestReportsAgreeOnTheSpeedOfARun(t *testing.T) {
	p := buildProgram(t)
	var dir, run, runs string
	var set []string
	for attempt := 1; ; attempt++ {
		dir = t.TempDir()
		run, runs = filepath.Join(dir, "run"), filepath.Join(dir, "mlruns")
		set = []string{"tracking.mlflow=" + runs, "tracking.interval=8", "train.log_interval=1", "train.steps=1000"}
		cmd := p.command(dir, set...)
		stopped := finishAfterStep(t, cmd, func() { cmd.Process.Signal(syscall.SIGTERM) })
		// Otherwise the run ended before the signal arrived, and the test tries again.
		if stopped.code != exit.Done || attempt == 5 {
			stopped.check(t, exit.Terminated, "")
			break
		}
	}
	before, _ := checkpoint.NewestStep(filepath.Join(run, "checkpoints"))
	finish(t, p.command(dir, append(set, "checkpoint.interval_steps=99")...), 0).check(t, exit.Done, "")
	meta, err := filepath.Glob(filepath.Join(runs, "*", "*", "meta.yaml"))
	if err != nil || len(meta) != 1 {
		t.Fatalf("got runs of MLflow %q, %v, want one", meta, err)
	}
	o := execute([]string{"analyze", "--compare", "--json", run, filepath.Dir(meta[0]), "--output-dir",
		filepath.Join(dir, "out")})
	type point struct {
		Step    int64
		Seconds float64
	}
	type figures struct {
		Steps    int64
		Rate     float64 `json:"throughput_per_sec"`
		StepTime float64 `json:"step_time"`
		Training float64 `json:"training_time"`
		Curves   []struct {
			Key    string
			Points []point
		}
	}
	var s struct{ Runs []figures }
	if err := json.Unmarshal([]byte(o.stdout), &s); err != nil || o.code != exit.Done || len(s.Runs) != 2 {
		t.Fatalf("got exit code %d, %v, %q and %q", o.code, err, o.stdout, o.stderr)
	}
	own, sent := s.Runs[0], s.Runs[1]
	var summary struct {
		Rate     float64 `json:"throughput_images_per_sec"`
		Training float64 `json:"training_time"`
	}
	var result struct {
		Rate float64 `json:"samples_per_second"`
	}
	if err := errors.Join(json.Unmarshal(clitest.ReadFile(t, filepath.Join(run, "logs", "summary.json")), &summary),
		json.Unmarshal(clitest.ReadFile(t, filepath.Join(run, "results", "result.json")), &result)); err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-4*want) || !(want > 0) {
			t.Errorf("%s, stopped after step %d: got %g, want %g", what, before, got, want)
		}
	}
	near("throughput from MLflow", sent.Rate, own.Rate)
	near("step time from MLflow", sent.StepTime, own.StepTime)
	near("training time from MLflow", sent.Training, own.Training)
	near("throughput in the summary", summary.Rate, own.Rate)
	near("training time in the summary", summary.Training, own.Training)
	near("throughput in the result", result.Rate, own.Rate)
	near("throughput and training time", own.Rate*own.Training, 8*1000)
	near("step time and training time", own.StepTime*1000, own.Training)
	for i, r := range s.Runs {
		for _, c := range r.Curves {
			for at, p := range c.Points {
				if at > 0 && !(p.Seconds > c.Points[at-1].Seconds) {
					t.Errorf("run %d, curve %s: step %d ends %g s after the start, the point before %g s", i, c.Key,
						p.Step, p.Seconds, c.Points[at-1].Seconds)
				}
			}
			near(fmt.Sprintf("end of curve %s of run %d", c.Key, i), c.Points[len(c.Points)-1].Seconds, own.Training)
		}
	}
	// Both sources contain evaluations at the same steps, between the points of training steps. MLflow does not contain
	// every step. The time of an evaluation is therefore only known to be between the two adjacent points of training
	// steps.
	evaluations := func(f figures) []point {
		for _, c := range f.Curves {
			if c.Key == "eval_loss" {
				return c.Points
			}
		}
		t.Fatalf("got curves %+v, want evaluations", f.Curves)
		return nil
	}
	a, b := evaluations(own), evaluations(sent)
	if len(a) != 10 || len(b) != len(a) {
		t.Fatalf("got %d and %d evaluations, want 10", len(a), len(b))
	}
	wide := 0 // evaluations far from the next point, because a busy machine paused the process
	for i := range a {
		after, until := 0.0, own.Training
		for _, c := range sent.Curves {
			for _, p := range c.Points {
				switch {
				case c.Key == "eval_loss":
				case p.Step < a[i].Step:
					after = max(after, p.Seconds)
				case p.Step > a[i].Step:
					until = min(until, p.Seconds)
				}
			}
		}
		if until-after > 0.2*own.Training {
			wide++
		}
		if a[i].Step != b[i].Step || math.Abs(a[i].Seconds-b[i].Seconds) > 0.01*own.Training+until-after {
			t.Errorf("evaluation %d: got %+v from the records and %+v from MLflow, between %g and %g s", i, a[i], b[i],
				after, until)
		}
	}
	if wide > 4 { // the intervals do not overlap, so at most four of them can exceed a fifth of the whole
		t.Errorf("%d evaluations are more than a fifth of the training time away from their points, want at most 4",
			wide)
	}
}

func TestFaultsOfTrackingSettings(t *testing.T) {
	p := buildProgram(t)
	for _, c := range []struct{ set, says string }{
		{"tracking.mlflow=ftp://host", "tracking.mlflow"},
		{"tracking.mlflow=points", `"./points" for the folder`},
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
