package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// runJSON is a line of runs --json.
type runJSON struct {
	Name     string
	State    struct{ Kind string }
	Model    string
	Steps    int64
	Loss     *float64
	BestEval *float64 `json:"best_eval"`
	Settings map[string]string
}

func TestRunsAreListed(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	root := t.TempDir()
	for name, rate := range map[string]string{"lr-1": "0.001", "lr-2": "0.01", "other": "0.01"} {
		if out, err := p.command(root, "experiment.name="+name, "optimizer.lr="+rate, "train.steps=3").
			CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "group", "nested", "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "group", "nested", ".lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{root: "simple_cnn", filepath.Join(root, "group"): "-"} {
		// The nested run has no settings.
		if o := execute([]string{"runs", "--input-dir", folder}); o.code != exit.Done ||
			strings.Contains(o.stdout, `""`) || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: got exit code %d and\n%s%s", folder, o.code, o.stdout, o.stderr)
		}
	}
	list := func(args ...string) outcome { return execute(append([]string{"runs", "--input-dir", root}, args...)) }
	names := func(args ...string) string {
		t.Helper()
		o := list(append(args, "--json")...)
		if o.code != exit.Done {
			t.Fatalf("%q: got exit code %d and %s", args, o.code, o.stderr)
		}
		var all []string
		for line := range strings.Lines(o.stdout) {
			var r runJSON
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if r.State.Kind != "finished" || r.Model != "simple_cnn" || r.Steps != 3 || r.Loss == nil ||
				r.BestEval == nil {
				t.Errorf("got %+v, want a finished run of simple_cnn with 3 steps, a loss and an evaluation", r)
			}
			all = append(all, r.Name)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		args []string
		want int
		has  string
	}{
		{nil, 3, "other"},
		{[]string{"lr-*"}, 2, "lr-1"},
		{[]string{"lr-[2-9]", "oth?r"}, 2, "lr-2"},
		{[]string{"--where", "optimizer.lr=1e-2"}, 2, "other"},
		{[]string{"--where", "optimizer.lr=0.01", "--where", `model.name="simple_cnn"`, "lr-*"}, 1, "lr-2"},
		{[]string{"--state", "finished,failed"}, 3, "lr-1"},
		{[]string{"--state", "crashed"}, 0, ""},
		{[]string{"--where", "optimizer.lr=7"}, 0, ""},
	} {
		if got := names(c.args...); len(strings.Fields(got)) != c.want || !strings.Contains(got, c.has) {
			t.Errorf("%q: got %q, want %d runs with %q", c.args, got, c.want, c.has)
		}
	}
	o := list("--key", "optimizer.lr,train.steps")
	for _, want := range []string{"best evaluation", "optimizer.lr", "lr-1", "0.001", "finished",
		"the folder group contains runs"} {
		if o.code != exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("got exit code %d and\n%s%swant %q", o.code, o.stdout, o.stderr, want)
		}
	}
	if o := list("none"); o.code != exit.Done || !strings.Contains(o.stdout, "none of the 3 runs") {
		t.Errorf("no run of this name: got %d, %q", o.code, o.stdout)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--where", "optimizer.lr"}, "want KEY=VALUE"},
		{[]string{"--where", "optimizer.lrr=1"}, "nearest: optimizer.lr"},
		{[]string{"--key", "nothing"}, "no run of " + root + " has the key nothing"},
		{[]string{"--state", "done"}, `--state: got "done"`},
		{[]string{"[a"}, "syntax error in pattern"},
		{[]string{"--input-dir", filepath.Join(root, "missing")}, "there is no folder"},
		{[]string{"--set", "train.steps=1"}, "--set train.steps"},
	} {
		if o := list(c.args...); o.code != exit.Usage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
}

// All commands must accept the same name of a run.
func TestCommandsTakeTheNameOfARun(t *testing.T) {
	p := buildProgram(t)
	dir := t.TempDir()
	root := filepath.Join(dir, "experiments")
	for _, name := range []string{"first", "second"} {
		if out, err := p.command(root, "experiment.name="+name, "train.steps=3").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Chdir(dir)
	for _, args := range [][]string{
		{"status", "first"}, {"eval", "first"}, {"eval", "first", "--best"}, {"analyze", "first", "second"},
		{"analyze", "--compare", "first", "second"},
		{"analyze", "--compare", "first", "second", "experiments/comparison"},
		{"checkpoint", "inspect", "first"}, {"checkpoint", "verify", "first"},
		{"checkpoint", "export", "first", "--output", "w.safetensors"},
	} {
		if o := execute(args); o.code != exit.Done {
			t.Errorf("%q: got exit code %d and %s", args, o.code, o.stderr)
		}
	}
	for i, setting := range []string{"model.init_from=first", "train.resume=first"} {
		if out, err := p.command(root, fmt.Sprintf("experiment.name=from%d", i), "train.steps=4",
			setting).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", setting, err, out)
		}
	}
	for _, args := range [][]string{{"eval", "third"}, {"analyze", "third"}, {"checkpoint", "verify", "third"},
		{"tracking", "sync", "third"}} {
		if o := execute(args); o.code != exit.Usage ||
			!strings.Contains(o.stderr, "there is no run of this name in experiments") {
			t.Errorf("%q: got exit code %d and %s", args, o.code, o.stderr)
		}
	}
	if err := os.Mkdir("second", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "eval"} {
		if o := execute([]string{command, "second"}); o.code != exit.Usage ||
			!strings.Contains(o.stderr, "write experiments/second or ./second") {
			t.Errorf("%s of a name that is also a path: got exit code %d and %s", command, o.code, o.stderr)
		}
	}
	t.Chdir(root)
	if o := execute([]string{"status", "first"}); o.code != exit.Done {
		t.Errorf("a path without a separator: got exit code %d and %s", o.code, o.stderr)
	}
}

func TestConfigDocsOfAKey(t *testing.T) {
	if o := execute([]string{"config", "docs", "optimizer.lr", "balance"}); o.code != exit.Done ||
		!strings.HasPrefix(o.stdout, "optimizer.lr\n") || !strings.Contains(o.stdout, "\n\nbalance.policy\n") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"config", "docs", "optimizer.l"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "nearest: optimizer.lr") {
		t.Errorf("got exit code %d and %s", o.code, o.stderr)
	}
}

// A run without a step has no loss. It must not seem to be the best run of a sweep.
func TestARunWithoutAStepHasNoLoss(t *testing.T) {
	p := buildProgram(t)
	for range 20 {
		root := t.TempDir()
		cmd := p.command(root, "train.steps=100000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(root, "run", "logs")); err == nil {
				break
			}
		}
		cmd.Process.Signal(syscall.SIGTERM)
		if code := exitOf(t, cmd.Wait()); code != exit.Terminated {
			t.Fatalf("got exit code %d, want %d", code, exit.Terminated)
		}
		var result map[string]any
		if text, err := os.ReadFile(filepath.Join(root, "run", "results", "result.json")); err != nil ||
			json.Unmarshal(text, &result) != nil {
			t.Fatalf("read the result: %v", err)
		}
		if result["steps"] != 0.0 {
			continue // the run ended before the signal arrived
		}
		for _, key := range []string{"final_train_loss", "samples_per_second"} {
			if value, has := result[key]; !has || value != nil {
				t.Errorf("%s: got %v, want null", key, value)
			}
		}
		var listed map[string]any
		o := execute([]string{"runs", "--input-dir", root, "--json"})
		if err := json.Unmarshal([]byte(o.stdout), &listed); err != nil || listed["steps"] != 0.0 ||
			listed["loss"] != nil || listed["samples_per_second"] != nil {
			t.Errorf("got %v and\n%s\nwant 0 steps, and null as loss and throughput", err, o.stdout)
		}
		return
	}
	t.Fatal("all 20 runs had made a step before the signal")
}
