package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// bench runs scripts/run_benchmark.sh with a fake program and a fake testbed.
type bench struct{ output, program, lab, calls, fails string }

// newBench creates the fake program. It records its arguments, and writes a result like the real program. If the file
// fails contains the name of a run and a code, the program exits with this code.
func newBench(t *testing.T) bench {
	t.Helper()
	needtest.Programs(t, "tools", "bash", "awk", "sed", "diff")
	dir := t.TempDir()
	b := bench{output: filepath.Join(dir, "runs"), program: filepath.Join(dir, "program"),
		lab: filepath.Join(dir, "lab"), calls: filepath.Join(dir, "calls"), fails: filepath.Join(dir, "fails")}
	executable(t, b.program, `#!/usr/bin/env bash
set -euo pipefail
echo "$*" >>'`+b.calls+`'
if [[ $1 == profile ]]; then
	echo '{}' >"${!#}/gpu_profiles.json"
	exit
fi
while (($#)); do
	case $1 in
	--experiment-name) name=$2 ;;
	--output-dir) output=$2 ;;
	train.steps=*) steps=${1#*=} ;;
	esac
	shift
done
code=$(sed -n "s/^$name //p" '`+b.fails+`' 2>/dev/null || true)
[[ -z $code ]] || { echo "hetero-train: error: made to fail" && exit "$code"; }
mkdir -p "$output/$name/results" "$output/$name/checkpoints"
printf '{\n  "steps": %s,\n  "samples_per_second": 12.5,\n  "exit": 0,\n  "program": "test"\n}\n' "$steps" >"$output/$name/results/result.json"
`)
	executable(t, b.lab, `#!/usr/bin/env bash
set -euo pipefail
[[ $1 == --cpu && $3 == -- ]]
export QUOTAS=$2
shift 3
exec "$@"
`)
	return b
}

func executable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs the script and returns its exit code and its output.
func (b bench) run(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	args = append([]string{"../../scripts/run_benchmark.sh", "--output-dir", b.output, "--binary", b.program, "--lab",
		b.lab}, args...)
	var out bytes.Buffer
	cmd := exec.Command("bash", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// called returns the number of starts of the program so far.
func (b bench) called(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(b.calls)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

func TestScriptRunsEachPolicyAndEachDistinctRankAlone(t *testing.T) {
	b := newBench(t)
	if code, said := b.run(t, "--cpu", "0.1,0.05,0.05", "--policies", "baseline,hybrid", "--seeds", "1,2", "--set",
		`optimizer.name="adamw"`, "--set", "balance.prices=[1, 2, 3]"); code != 0 {
		t.Fatalf("got exit code %d:\n%s", code, said)
	}
	entries, err := os.ReadDir(b.output)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != ".profiles" {
			names = append(names, e.Name())
		}
	}
	want := "hybrid_simple_cnn_synthetic_image_lab-10-5-5_seed1 hybrid_simple_cnn_synthetic_image_lab-10-5-5_seed2 " +
		"none_simple_cnn_synthetic_image_lab-10-5-5_seed1 none_simple_cnn_synthetic_image_lab-10-5-5_seed2 " +
		"none_simple_cnn_synthetic_image_solo-0.05_seed1 none_simple_cnn_synthetic_image_solo-0.1_seed1"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
	run, err := readBenchmark(filepath.Join(b.output, names[0]))
	if err != nil || run.Policy != "hybrid" || run.Ranks != 3 || run.BatchSize != 128 ||
		fmt.Sprint(run.Solo) != "[solo-0.1 solo-0.05 solo-0.05]" || run.Machine == "" {
		t.Errorf("got %+v, %v", run, err)
	}
	solo, err := readBenchmark(filepath.Join(b.output, names[5]))
	if err != nil || solo.Scenario != "solo-0.1" || solo.Ranks != 1 || len(solo.Solo) != 0 {
		t.Errorf("got %+v, %v", solo, err)
	}
	command := commandOf(t, filepath.Join(b.output, names[0]))
	for _, part := range []string{b.lab + " --cpu 0.1,0.05,0.05 -- " + b.program + " train --model simple_cnn",
		"balance.policy=hybrid", `optimizer.name="adamw"`, "experiment.seed=1", "data.batch_size=128",
		"balance.prices=[1, 2, 3]", "balance.curve_cache=off"} {
		if !strings.Contains(command, part) {
			t.Errorf("%s\nlacks %s", command, part)
		}
	}
	profile := filepath.Join(b.output, ".profiles", "simple_cnn_synthetic_image_lab-10-5-5", "gpu_profiles.json")
	if _, err := os.Stat(profile); err != nil || !strings.Contains(command, "profile.gpu_profiles="+profile) {
		t.Errorf("%s\nlacks the scenario's profile %s (%v)", command, profile, err)
	}
	if calls, err := os.ReadFile(b.calls); err != nil ||
		strings.Count(string(calls), "profile --set model.name=simple_cnn") != 1 {
		t.Errorf("got the calls %s, %v, want one profile for all policies and seeds", calls, err)
	}
	if alone := commandOf(t, filepath.Join(b.output, names[5])); strings.Contains(alone, "gpu_profiles") {
		t.Errorf("a rank alone needs no profile: got %s", alone)
	}
	if alone := commandOf(t, filepath.Join(b.output, names[5])); strings.Contains(alone, "balance.prices") ||
		!strings.Contains(alone, "adamw") {
		t.Errorf("a rank alone: got %s", alone)
	}
	if _, err := os.Stat(filepath.Join(b.output, names[0], "checkpoints")); !os.IsNotExist(err) {
		t.Errorf("checkpoints of a finished run: got %v, want them gone", err)
	}
}

// commandOf returns the command line in the benchmark.json of a run.
func commandOf(t *testing.T, dir string) string {
	t.Helper()
	var raw struct {
		Command []string `json:"command"`
	}
	text, err := os.ReadFile(filepath.Join(dir, benchmarkFile))
	if err := errors.Join(err, json.Unmarshal(text, &raw)); err != nil {
		t.Fatal(err)
	}
	return strings.Join(raw.Command, " ")
}

func TestScriptGoesOnWhereItStopped(t *testing.T) {
	b := newBench(t)
	args := []string{"--scenarios", "single,equal", "--ranks", "1", "--seeds", "1"}
	name := "dynamic_simple_cnn_synthetic_image_equal_seed1"
	writeFile(t, b.fails, name+" 5\n")
	code, said := b.run(t, args...)
	if code != 1 || !strings.Contains(said, "FAILED with exit code 5: hetero-train: error: made to fail") ||
		!strings.Contains(said, "1 runs failed: "+name) {
		t.Fatalf("got exit code %d:\n%s", code, said)
	}
	before := b.called(t)
	writeFile(t, b.fails, "")
	if code, said = b.run(t, args...); code != 0 || b.called(t) != before+1 ||
		!strings.Contains(said, "was interrupted: its folder is now "+b.output+"/.unfinished/"+name+".1") {
		t.Errorf("got exit code %d after %d calls, want one call more than %d:\n%s", code, b.called(t), before, said)
	}
	if code, said = b.run(t, args...); code != 0 || b.called(t) != before+1 || !strings.Contains(said, "0 to do") {
		t.Errorf("all finished: got exit code %d after %d calls:\n%s", code, b.called(t), said)
	}
	if code, said = b.run(t, append(args, "--batch-size", "64")...); code != 2 || b.called(t) != before+1 ||
		!strings.Contains(said, "contains a finished run with other settings") {
		t.Errorf("other settings: got exit code %d after %d calls:\n%s", code, b.called(t), said)
	}
}

func TestScriptStopsWhereTheProgramRefusesItsSettings(t *testing.T) {
	b := newBench(t)
	writeFile(t, b.fails, "none_simple_cnn_synthetic_image_single_seed1 2\n")
	if code, said := b.run(t, "--scenarios", "single"); code != 2 || b.called(t) != 1 ||
		!strings.Contains(said, "rejects the settings: hetero-train: error: made to fail") {
		t.Errorf("got exit code %d after %d calls:\n%s", code, b.called(t), said)
	}
}

func TestScriptSaysWhatIsWrongWithItsArguments(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--help"}, 0, "RTX 3060, RTX 3050, GTX 1650, GTX 1650"},
		{[]string{"--dry-run", "--scenarios", "four-unequal", "--policies", "baseline"}, 0,
			"--cpu 0.8,0.53,0.23,0.23 --"},
		{[]string{"--dry-run", "--scenarios", "laptops-wifi"}, 0,
			"--cpu 0.8,0.5,0.3 --link 100mbit,100mbit,100mbit --"},
		{[]string{"--polices", "none"}, 2, "unknown option: got '--polices'"},
		{[]string{"--policies"}, 2, "--policies: want a value"},
		{[]string{"--policies", "fastest"}, 2, "--policies: got 'fastest', want a list of: none"},
		{[]string{"--models", "a b"}, 2, "--models: got 'a b'"},
		{[]string{"--seeds", "one"}, 2, "--seeds: got 'one'"},
		{[]string{"--scenarios", "five"}, 2, "--scenarios: got 'five', want a list of: single equal"},
		{[]string{"--cpu", "0.8;reboot"}, 2, "--cpu: got '0.8;reboot'"},
		{[]string{"--cpu", "0.001"}, 2, "want at least 0.01"},
		{[]string{"--cpu", "9999,9999"}, 2, "are more than the"},
		{[]string{"--steps", "50"}, 2, "--steps: got 50, want at least 51"},
		{[]string{"--set", "balance.policy=none"}, 2, "--set balance.policy: this script sets the key itself"},
		{[]string{"--set", "x"}, 2, "--set: got 'x', want table.key=value"},
		{[]string{"--binary", "/nowhere/hetero-train"}, 2, "run make first"},
		{[]string{"--lab", "/nowhere/lab.sh", "--cpu", "0.01,0.01"}, 2,
			"no /nowhere/lab.sh, which starts ranks with CPU quotas"},
		{[]string{"--models", strings.Repeat("m", 40), "--scenarios", "single"}, 2, "want at most 64"},
	} {
		if code, said := b.run(t, c.args...); code != c.code || !strings.Contains(said, c.says) || b.called(t) != 0 {
			t.Errorf("%v: got exit code %d and\n%swant %d and %q", c.args, code, said, c.code, c.says)
		}
	}
}
