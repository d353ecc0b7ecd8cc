package program

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// unequalRun trains with two ranks. The device of rank 1 simulates the slowdown.
func (p program) unequalRun(t *testing.T, output, slowdown string, set ...string) (stderr string) {
	t.Helper()
	set = append([]string{"device.kind=cpu", "model.channels=[16, 32]", "data.image_size=32", "data.batch_size=64",
		"train.precision=f32", "model.batch_norm=ghost", "model.ghost_group=2"}, set...)
	return p.unlikeRanks(t, output, "HETERO_LAB_SLOWDOWN="+slowdown, set...).stderr
}

func decisions(t *testing.T, output string) (all []rebalance.DecisionLine) {
	t.Helper()
	for line := range bytes.Lines(clitest.ReadFile(t, filepath.Join(output, "run", "logs", rebalance.DecisionsFile))) {
		var d rebalance.DecisionLine
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("decision %s: %v", line, err)
		}
		all = append(all, d)
	}
	return all
}

func TestHybridGivesASlowRankLess(t *testing.T) {
	p, output := buildRanks(t), t.TempDir()
	stderr := p.unequalRun(t, output, "8", "train.steps=90", "balance.interval=5", "profile.at_start=off")
	for _, want := range []string{
		"Registered 2 nodes", "Node 1: Compute score unknown (profile.at_start is off), Memory ",
		"Calculated batch sizes: {0: 32, 1: 32}", "Rebalancing triggered", `reason="performance variance detected: `,
		"New batch sizes: {0: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the log lacks %q:\n%s", want, stderr)
		}
	}
	all := decisions(t, output)
	if len(all) < 7 {
		t.Fatalf("got %d decisions, want one each 5 of 90 steps but for those in which plans were made", len(all))
	}
	last := all[len(all)-1]
	if last.Next[1] >= 24 || last.Next[0]+last.Next[1] != 64 || last.Next[1]%2 != 0 {
		t.Errorf(
			"got the shares %v in the end, want far less than half for a rank that is 8 times slower, in groups of 2",
			last.Next)
	}
	curves, _, err := simulate.ReadCurves(
		bytes.NewReader(clitest.ReadFile(t, filepath.Join(output, "run", "logs", rebalance.CurvesFile))))
	// Both ranks have computed shares of 32 samples.
	if err != nil || len(curves) != 2 || curves[1].At(32) < 2*curves[0].At(32) {
		t.Errorf("exported curves: got %v, %v, want those of two ranks, the second one slower", curves, err)
	}
	again := t.TempDir() // a second run, which must use the cached curves from its first step
	p.unequalRun(t, again, "8", "train.steps=12", "balance.interval=5", "profile.at_start=off")
	if first := decisions(t, again)[0]; first.Shares[1] >= 24 {
		t.Errorf("a second run started with the shares %v, although the curves are known", first.Shares)
	}
}

// A policy may change which rank computes a sample, but must not change the result of training.
func TestPoliciesTrainAlike(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	losses := map[string][]float64{}
	for _, policy := range []string{"none", "proportional", "dynamic", "hybrid"} {
		output, fixed := filepath.Join(dir, policy), policy == "none" || policy == "proportional"
		// Without a profile, dynamic and hybrid start with equal shares. With a profile, the first shares could already
		// be the final ones.
		profile := "off"
		if fixed {
			profile = "auto"
		}
		p.unequalRun(t, output, "4", "train.steps=30", "balance.interval=3", "balance.policy="+policy,
			"balance.curve_cache=off", "profile.at_start="+profile)
		records, _, err := runtime.ReadMetrics(filepath.Join(output, "run", "logs", runtime.FileName(0)))
		if err != nil || len(records) != 30 {
			t.Fatalf("%s: %d records, %v", policy, len(records), err)
		}
		shares := map[int64]bool{}
		for _, r := range records {
			losses[policy] = append(losses[policy], r.Values[telemetry.Loss])
			shares[r.BatchSize] = true
		}
		if fixed != (len(shares) == 1) {
			t.Errorf("%s: rank 0 had the shares %v", policy, shares)
		}
	}
	for policy, got := range losses {
		for step, want := range losses["none"] {
			if math.Abs(got[step]-want) > 1e-3*want { // tolerance: sums of f32 in another order, over 30 AdamW steps
				t.Errorf("%s: loss of step %d: got %v, equal shares gave %v", policy, step+1, got[step], want)
				break
			}
		}
	}
}

func TestCompareLetsPoliciesTakeTurns(t *testing.T) {
	t.Parallel()
	p, output := buildRanks(t), t.TempDir()
	args := []string{"balance", "compare", "--rounds", "3", "--block", "3", "--policies", "none,hybrid,oracle,off",
		"-c", p.config, "--set", "experiment.output_dir=" + output,
		"--set", "parallel.ranks=2", "--set", "data.batch_size=16"}
	run := finish(t, exec.Command(p.path, args...), 0)
	run.check(t, exit.Done, "")
	for _, want := range []string{"of the oracle", "\n    none ", "\n  hybrid ", "\n  oracle ", "\n     off "} {
		if !strings.Contains(run.stdout, want) {
			t.Errorf("output without %q:\n%s", want, run.stdout)
		}
	}
	var kept struct {
		Results []rebalance.ComparisonResult `json:"results"`
	}
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(output, "run-balance_compare", "logs",
		"balance_compare.json")), &kept); err != nil || len(kept.Results) != 4 {
		t.Fatalf("got %+v, %v, want the results of four", kept, err)
	}
	for _, r := range kept.Results {
		if len(r.Blocks) != 3 || !(r.StepSeconds > 0) ||
			!(r.ShareOfOracle.Low <= r.ShareOfOracle.Ratio && r.ShareOfOracle.Ratio <= r.ShareOfOracle.High) {
			t.Errorf("%s: got %+v, want three blocks and a share within its interval", r.Policy, r)
		}
	}
}

func TestCompareWithoutOracle(t *testing.T) {
	t.Parallel()
	p, output := buildRanks(t), t.TempDir()
	args := []string{"balance", "compare", "--rounds", "3", "--block", "3", "--policies", "none,dynamic", "-c",
		p.config, "--set", "experiment.output_dir=" + output, "--set", "parallel.ranks=2", "--set",
		"data.batch_size=16"}
	finish(t, exec.Command(p.path, args...), 0).check(t, exit.Done, "")
	args[len(args)-3] = "parallel.ranks=1"
	finish(t, exec.Command(p.path, args...), 0).check(t, exit.Usage, "want several ranks")
}

func TestCompareRefusesNonsense(t *testing.T) {
	for _, test := range []struct{ flag, value, want string }{
		{"--policies", "best", `got "best", want one of none,`},
		{"--policies", "none,none", `got "none" twice, want each name at most once`},
		{"--policies", "", "got no name, want at least one of none,"},
		{"--block", "2", "got 2, want 3 to 1000000"},
		{"--rounds", "0", "got 0, want 3 to 1000000"},
	} {
		o := execute([]string{"balance", "compare", test.flag, test.value})
		if o.code != exit.Usage || !strings.Contains(o.stderr, "balance compare: "+test.flag+": ") ||
			!strings.Contains(o.stderr, test.want) {
			t.Errorf("%s %q: got exit code %d, %s", test.flag, test.value, o.code, o.stderr)
		}
	}
}
