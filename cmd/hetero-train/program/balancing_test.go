package program

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// unequalRun trains as two ranks of which the second one is slower by a factor that its device simulates.
func (p program) unequalRun(t *testing.T, output, slowdown string, set ...string) (stderr string) {
	t.Helper()
	port := freePort(t)
	set = append([]string{"device.kind=cpu", "model.channels=[16, 32]", "data.image_size=32", "data.batch_size=64", "train.precision=f32", "model.batch_norm=ghost", "model.ghost_group=2"}, set...)
	slow := asRank(p.command(output, set...), 1, 2, port)
	slow.Env = append(slow.Env, "HETERO_LAB_SLOWDOWN="+slowdown)
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	lead := finish(t, asRank(p.command(output, set...), 0, 2, port), 0)
	code := exitOf(t, slow.Wait())
	if lead.code == exit.Usage && strings.Contains(lead.stderr, "libhetero_cpu.so") {
		t.Skip("no CPU device was built")
	}
	lead.check(t, exit.Done, "")
	if code != exit.Done {
		t.Fatalf("rank 1: got exit code %d", code)
	}
	return lead.stderr
}

func decisions(t *testing.T, output string) (all []decisionLine) {
	t.Helper()
	for line := range bytes.Lines(readFile(t, filepath.Join(output, "run", "logs", decisionsFile))) {
		var d decisionLine
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("decision %s: %v", line, err)
		}
		all = append(all, d)
	}
	return all
}

func TestHybridGivesASlowRankLess(t *testing.T) {
	p, output := buildRanks(t), t.TempDir()
	stderr := p.unequalRun(t, output, "8", "train.steps=120", "balance.interval=5", "profile.at_start=off")
	for _, want := range []string{"Registered 2 nodes", "Node 1: Compute score unknown (profile.at_start is off), Memory ", "Calculated batch sizes: {0: 32, 1: 32}", "Rebalancing triggered", "New batch sizes: {0: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the log lacks %q:\n%s", want, stderr)
		}
	}
	all := decisions(t, output)
	if len(all) < 10 {
		t.Fatalf("got %d decisions, want one each 5 of 120 steps but for those in which plans were made", len(all))
	}
	last := all[len(all)-1]
	if last.Next[1] >= 24 || last.Next[0]+last.Next[1] != 64 || last.Next[1]%2 != 0 {
		t.Errorf("got the shares %v in the end, want far less than half for a rank that is 8 times slower, in groups of 2", last.Next)
	}
	curves, _, err := simulate.ReadCurves(bytes.NewReader(readFile(t, filepath.Join(output, "run", "logs", curvesFile))))
	if err != nil || len(curves) != 2 || curves[1].At(16) < 2*curves[0].At(16) {
		t.Errorf("exported curves: got %v, %v, want those of two ranks, the second one slower", curves, err)
	}
	again := t.TempDir() // what was learned serves the next run from its first step on
	p.unequalRun(t, again, "8", "train.steps=12", "balance.interval=5")
	if first := decisions(t, again)[0]; first.Shares[1] >= 24 {
		t.Errorf("a second run started with the shares %v, although the curves are known", first.Shares)
	}
}

// Policies change who computes a sample, never what is learned.
func TestPoliciesTrainAlike(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	losses := map[string][]float64{}
	for _, policy := range []string{"none", "proportional", "dynamic", "hybrid"} {
		output, fixed := filepath.Join(dir, policy), policy == "none" || policy == "proportional"
		profile := "off" // dynamic and hybrid start from equal shares, or the profile's could be right from the first step on
		if fixed {
			profile = "auto"
		}
		p.unequalRun(t, output, "4", "train.steps=60", "balance.interval=3", "balance.policy="+policy, "balance.curve_cache=off", "profile.at_start="+profile)
		records, _, err := runtime.ReadMetrics(filepath.Join(output, "run", "logs", runtime.FileName(0)))
		if err != nil || len(records) != 60 {
			t.Fatalf("%s: %d records, %v", policy, len(records), err)
		}
		shares := map[int64]bool{}
		for _, r := range records {
			losses[policy] = append(losses[policy], r.Loss)
			shares[r.BatchSize] = true
		}
		if fixed != (len(shares) == 1) {
			t.Errorf("%s: rank 0 had the shares %v", policy, shares)
		}
	}
	for policy, got := range losses {
		for step, want := range losses["none"] {
			if math.Abs(got[step]-want) > 1e-3*want { // f32 sums in another order, 60 AdamW steps long
				t.Errorf("%s: loss of step %d: got %v, equal shares gave %v", policy, step+1, got[step], want)
				break
			}
		}
	}
}

func TestCompareLetsPoliciesTakeTurns(t *testing.T) {
	p, output := buildRanks(t), t.TempDir()
	args := []string{"balance", "compare", "--rounds", "3", "--block", "3", "--policies", "none,hybrid,oracle,off", "-c", p.config, "--set", "experiment.output_dir=" + output,
		"--set", "parallel.ranks=2", "--set", "data.batch_size=16"}
	run := finish(t, exec.Command(p.path, args...), 0)
	run.check(t, exit.Done, "")
	for _, want := range []string{"of the oracle", "\n    none ", "\n  hybrid ", "\n  oracle ", "\n     off "} {
		if !strings.Contains(run.stdout, want) {
			t.Errorf("output without %q:\n%s", want, run.stdout)
		}
	}
	var kept struct {
		Results []contestResult `json:"results"`
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(output, "run-balance_compare", "logs", "balance_compare.json")), &kept); err != nil || len(kept.Results) != 4 {
		t.Fatalf("got %+v, %v, want the results of four", kept, err)
	}
	for _, r := range kept.Results {
		if len(r.Blocks) != 3 || !(r.StepSeconds > 0) || !(r.ShareOfOracle.Low <= r.ShareOfOracle.Ratio && r.ShareOfOracle.Ratio <= r.ShareOfOracle.High) {
			t.Errorf("%s: got %+v, want three blocks and a share within its interval", r.Policy, r)
		}
	}
}

func TestStoppedComparisonTellsOfItsFinishedRounds(t *testing.T) {
	block := func(seconds float64) blockMeans { return blockMeans{Seconds: seconds, Median: seconds} }
	c := &contest{flags: &contestFlags{policies: []string{"hybrid", contestOracle}, rounds: 100}, round: 4, turn: 1, oracle: []int{1},
		contestants: []*contestant{
			{name: contestOracle, shares: []int{1}, blocks: []blockMeans{block(9), block(1), block(1), block(1)}},
			{name: "hybrid", shares: []int{1}, blocks: []blockMeans{block(9), block(2), block(2), block(2), block(100)}}}}
	r := c.results(&hindsight{best: []int{1}, resampled: [][]balancer.Curve{{{{Samples: 1, Seconds: 1}}}}})
	if got := r[0].ShareOfOracle; got.Ratio != 0.5 || len(r[0].Blocks) != 4 || r[0].StepSeconds != 2 {
		t.Errorf("got %+v of %d blocks, want 0.5: the first of four rounds and the unfinished fifth do not count", got, len(r[0].Blocks))
	}
}

func TestCompareWithoutOracle(t *testing.T) {
	p, output := buildRanks(t), t.TempDir()
	args := []string{"balance", "compare", "--rounds", "3", "--block", "3", "--policies", "none,dynamic", "-c", p.config, "--set", "experiment.output_dir=" + output, "--set", "parallel.ranks=2", "--set", "data.batch_size=16"}
	finish(t, exec.Command(p.path, args...), 0).check(t, exit.Done, "")
	args[len(args)-3] = "parallel.ranks=1"
	finish(t, exec.Command(p.path, args...), 0).check(t, exit.Usage, "want several ranks")
}

func TestContestPicksTheOracleFromLines(t *testing.T) {
	blocks := []measured{{[]int{64, 0}, []float64{1, 0}}, {[]int{10, 0}, []float64{0.2, 0}}, {[]int{12, 0}, []float64{0.24, 0}}, {[]int{8, 0}, []float64{0.16, 0}}}
	through := func(blocks []measured, rank, like int) balancer.Curve {
		return line(blocks, make([]float64, len(blocks)), make([]float64, len(blocks)), rank, like, 128)
	}
	// 64 samples are too far from 8 to tell of their neighbourhood.
	if got := through(blocks, 0, 8).At(9); math.Abs(got-0.18) > 1e-12 {
		t.Errorf("got %v s for 9 samples, want 0.18", got)
	}
	if got := through(blocks[:1], 0, 64).At(32); math.Abs(got-0.5) > 1e-12 {
		t.Errorf("got %v s for half of the only share, want half its time", got)
	}
	if got := through(blocks[:1], 0, 8).At(32); math.Abs(got-0.5) > 1e-12 {
		t.Errorf("got %v s for half of the only share, far from what was asked, want half its time", got)
	}
	if got := through(blocks, 1, 0).At(32); got != 0 {
		t.Errorf("got %v s of a rank that holds nothing", got)
	}
}

// A host that is slow for a third of the blocks, and a neighbour that takes half of one rank in two of them, must not move the oracle.
func TestTheOracleBearsAMachineThatIsNotQuiet(t *testing.T) {
	perSample, fixed := []float64{0.9, 1.75, 3.4, 3.4}, []float64{20, 10, 5, 5} // ms
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 8))
		var blocks []measured
		for i := range 31 {
			b := measured{make([]int, 4), make([]float64, 4)}
			common := 0.07 * random.NormFloat64()
			if i%3 == 0 {
				common += 0.7
			}
			for r, n := range []int{256, 128, 64, 64} {
				b.Shares[r] = int(float64(n) * (0.8 + 0.4*random.Float64()))
				b.Seconds[r] = 1e-3 * (fixed[r] + perSample[r]*float64(b.Shares[r])) * math.Exp(common+0.02*random.NormFloat64())
			}
			if i == 4 || i == 15 {
				b.Seconds[0] *= 2
			}
			blocks = append(blocks, b)
		}
		c := &contest{balancing: &balancing{options: balancer.Options{Batch: balancer.Batch{Total: 512}}}}
		like := []int{256, 128, 64, 64}
		var truth []balancer.Curve
		for r := range like {
			truth = append(truth, balancer.Curve{{Samples: 1, Seconds: 1e-3 * (fixed[r] + perSample[r])}, {Samples: 512, Seconds: 1e-3 * (fixed[r] + 512*perSample[r])}})
		}
		ideal, err := balancer.Solve(balancer.Batch{Total: 512}, truth)
		if err != nil {
			t.Fatal(err)
		}
		best, _ := balancer.Slowest(truth, ideal)
		got, _ := balancer.Slowest(truth, c.best(c.lines(blocks, like)))
		if best/got < 0.98 { // 2 % of noise over twenty blocks, of four ranks
			t.Errorf("seed %d: the oracle's shares are at %.3f of the best, want 0.98", seed, best/got)
		}
	}
}

func TestHindsightTellsSteadySharesFromOthers(t *testing.T) {
	even := balancer.Curve{{Samples: 1, Seconds: 1}, {Samples: 100, Seconds: 100}}
	tilted := balancer.Curve{{Samples: 1, Seconds: 1}, {Samples: 100, Seconds: 110}}
	sure := &hindsight{best: []int{50, 50}, resampled: [][]balancer.Curve{{even, even}}}
	unsure := &hindsight{best: []int{50, 50}, resampled: [][]balancer.Curve{{even, even}, {even, tilted}}} // 52/48 may be as good
	for _, c := range []struct {
		h       *hindsight
		changes [][]int
		want    int
	}{
		{sure, nil, 0}, {sure, [][]int{{50, 50}}, 1}, {sure, [][]int{{70, 30}, {60, 40}, {50, 50}}, 3}, {sure, [][]int{{50, 50}, {60, 40}}, -1},
		{sure, [][]int{{60, 40}, {52, 48}}, -1}, {unsure, [][]int{{60, 40}, {52, 48}}, 2},
	} {
		shares := []int{50, 50}
		if n := len(c.changes); n > 0 {
			shares = c.changes[n-1]
		}
		if got := c.h.settled(&contestant{shares: shares, changes: c.changes}); got != c.want {
			t.Errorf("changes %v: settled after %d, want %d", c.changes, got, c.want)
		}
	}
}

func TestRatioOfPairs(t *testing.T) {
	r := ratioInterval([]float64{1, 2, 3}, []float64{2, 4, 6})
	if r.Ratio != 0.5 || r.Low != 0.5 || r.High != 0.5 {
		t.Errorf("got %+v of pairs that all have the ratio 0.5", r)
	}
}

func TestDecisionsOfStepsThatComeAgainAreDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "balance.jsonl")
	if err := os.WriteFile(path, []byte(`{"step":10}`+"\n"+`{"step":20}`+"\n"+`{"step":5}`+"\n"+`{"step":1`), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := openLines("decisions", path, 10, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.add(map[string]int{"step": 15})
	l.add(map[string]int{"step": 16})
	l.rolledBack(15)
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if got, want := string(readFile(t, path)), `{"step":10}`+"\n"+`{"step":5}`+"\n"+`{"step":15}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompareRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{{"--policies", "best"}, {"--policies", "none,none"}, {"--block", "2"}, {"--rounds", "0"}} {
		o := execute(append([]string{"balance", "compare"}, args...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, "balance compare: ") {
			t.Errorf("%v: got exit code %d, %s", args, o.code, o.stderr)
		}
	}
}
