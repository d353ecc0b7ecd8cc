package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// curvesOfTwo contains the curves of two ranks. Rank 1 is three times as fast as rank 0.
const curvesOfTwo = "rank,batch,seconds\n0,1,0.01\n0,256,2.56\n1,1,0.00333333333\n1,256,0.853333333\n"

func fileOfCurves(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "curves.csv")
	if err := os.WriteFile(file, []byte(curvesOfTwo), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimulateRefuses(t *testing.T) {
	file := fileOfCurves(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "train.epochs=1"}, "balance simulate: --set train.epochs cannot be used with this command"},
		{[]string{"-c", "missing.toml"}, "balance simulate: -c missing.toml cannot be used with this command"},
		{[]string{"--log-level", "silly"}, `--log-level: unknown level (got "silly"`},
		{[]string{"--steps", "0"}, "--steps: got 0, want 1 to 100000000"},
		{[]string{"--interval", "0"}, "--interval: got 0 steps, want at least 1"},
		{[]string{"--noise", "-1"}, "--noise: got -1, want 0 to 10"},
		{[]string{"--global-batch", "0"}, "--global-batch: got 0, want 1 to 16777216"},
		{[]string{"--global-batch", "1000000000"}, "--global-batch: got 1000000000, want 1 to 16777216"},
		{[]string{"--policy", "best"}, `--policy: got "best", want none, proportional, dynamic, hybrid`},
		{[]string{"--scores", "1,2,3"}, "--scores: got 3 values, want 2"},
		{[]string{"--scores", "1,-2"}, "score of rank 1: got -2"},
		{[]string{"--scores", "4, 2"}, `--scores: got "4, 2", want numbers, separated by commas without spaces`},
		{[]string{"--curves", os.DevNull}, "want a regular file"},
	} {
		o := execute(append([]string{"balance", "simulate", "--curves", file, "--global-batch", "200"}, test.args...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, test.want) {
			t.Errorf("%v: got exit code %d and %q, want %d and %q", test.args, o.code, o.stderr, exit.Usage, test.want)
		}
	}
}

func TestSimulateWithScores(t *testing.T) {
	file := fileOfCurves(t)
	args := []string{"balance", "simulate", "--curves", file, "--global-batch", "200", "--policy", "proportional"}
	if o := execute(args); !strings.Contains(o.stdout, "shares [100 100]") ||
		!strings.Contains(o.stderr, "without --scores, policy proportional gives equal shares") {
		t.Errorf("without scores: got %+v, want equal shares and a warning", o)
	}
	none := []string{"balance", "simulate", "--curves", file, "--global-batch", "200", "--policy", "none", "--scores",
		"1,3"}
	if o := execute(none); !strings.Contains(o.stdout, "shares [100 100]") ||
		!strings.Contains(o.stderr, "policy none ignores --scores") {
		t.Errorf("policy none with scores: got %+v, want equal shares and a warning", o)
	}
	o := execute(append(args, "--scores", "1,3", "--json"))
	var r simulate.Result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.stderr != "" {
		t.Fatalf("got %+v (%v), want one JSON object and no message", o, err)
	}
	if r.Shares[0] != 50 || r.Shares[1] != 150 || r.StartShareOfOracle < 0.9999 || r.MeanShareOfOracle < 0.9999 ||
		r.LastQuarterShareOfOracle < 0.9999 {
		t.Errorf("got %+v, want shares of 50 and 150 from the start on", r)
	}
}

// A shell passes the output of a command as a named pipe if the argument is --curves <(command).
func TestSimulateReadsANamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "curves")
	if err := needtest.MakePipe(pipe); err != nil {
		needtest.Missing(t, "system", err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte(curvesOfTwo), 0o600) }()
	o := execute([]string{"balance", "simulate", "--curves", pipe, "--global-batch", "200", "--policy", "none"})
	if o.code != exit.Done || !strings.Contains(o.stdout, "shares [100 100]") {
		t.Fatalf("got %+v, want a simulation of two ranks", o)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// Standard input may be a pipe. The result must not contain shares that were decided after the last step, because no
// step used them.
func TestSimulateReadsStandardInput(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	os.Stdin = in
	if _, err := out.WriteString(curvesOfTwo); err != nil {
		t.Fatal(err)
	}
	out.Close()
	o := execute([]string{"balance", "simulate", "--curves", "-", "--global-batch", "200", "--noise", "0", "--steps",
		"1", "--json"})
	var r simulate.Result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("got %+v: %v", o, err)
	}
	if r.Rebalances != 0 || len(r.History) != 0 || r.Shares[0] != 100 || r.ShareOfOracle != r.StartShareOfOracle {
		t.Errorf("got %+v, want the equal shares of the only step", r)
	}
}

// If the policy does not report its memory, the account of the memory must say so.
func TestSimulateShowsTheMemory(t *testing.T) {
	file := fileOfCurves(t)
	for policy, unknown := range map[string]bool{"hybrid": false, "none": true, "dynamic": true} {
		o := execute([]string{"balance", "simulate", "--curves", file, "--global-batch", "200", "--policy", policy})
		if !strings.Contains(o.stdout, "\nmemory: ") || strings.HasSuffix(o.stdout, ", policy unknown\n") != unknown {
			t.Errorf("policy %s: got %+v, want the memory, that of the policy unknown: %v", policy, o, unknown)
		}
	}
}

// The output must contain the CPU times of the decisions. If a run has fewer steps than an interval, it has no
// decision.
func TestSimulateShowsTheTimesOfDecisions(t *testing.T) {
	file := fileOfCurves(t)
	args := []string{"balance", "simulate", "--curves", file, "--global-batch", "200", "--policy", "dynamic", "--steps"}
	if o := execute(append(args, "100")); !strings.Contains(o.stdout, "\n10 decisions in CPU time: median ") {
		t.Errorf("got %+v, want the times of 10 decisions", o)
	}
	if o := execute(append(args, "5")); o.code != exit.Done || strings.Contains(o.stdout, "decision") {
		t.Errorf("got %+v, want no decision", o)
	}
	var r struct {
		Decisions *struct {
			Count          int     `json:"count"`
			MedianSeconds  float64 `json:"median_cpu_seconds"`
			LongestSeconds float64 `json:"longest_cpu_seconds"`
			LongestStep    int     `json:"longest_after_step"`
		} `json:"decisions"`
	}
	o := execute(append(args, "100", "--json"))
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.Decisions == nil {
		t.Fatalf("got %+v (%v), want the times of the decisions", o, err)
	}
	if d := r.Decisions; d.Count != 10 || d.MedianSeconds < 0 || d.LongestSeconds < d.MedianSeconds ||
		d.LongestStep%10 != 0 {
		t.Errorf("got %+v, want 10 decisions after every 10 steps", d)
	}
	o = execute(append(args, "5", "--json"))
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.Decisions != nil {
		t.Errorf("got %+v (%v), want no decision", o, err)
	}
}

// The output must show the estimate of the policy and the true value. A policy without curves has no estimate.
func TestSimulateShowsTheEstimate(t *testing.T) {
	file := fileOfCurves(t)
	args := []string{"balance", "simulate", "--curves", file, "--global-batch", "200"}
	if o := execute(args); !strings.Contains(o.stdout, "estimate of the policy, from measured times: ") {
		t.Errorf("hybrid: got %q, want its estimate", o.stdout)
	}
	for policy, estimates := range map[string]bool{"hybrid": true, "dynamic": false} {
		o := execute(append(args, "--json", "--policy", policy))
		var r simulate.Result
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatal(err)
		}
		if e := r.Estimate; (e != nil) != estimates || e != nil &&
			(e.Low > e.Value || e.Value > e.High || e.Value < 0.9) {
			t.Errorf("%s: got estimate %+v, want one: %v", policy, e, estimates)
		}
	}
}
