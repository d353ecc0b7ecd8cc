package program

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/stats"
)

// In runs of unequal ranks with evaluations and checkpoints, the parts of a step must sum to the elapsed time.
// scripts/account_runs.sh checks the same for 20 runs in the testbed.
func TestTheAccountSumsToTheMeasuredStep(t *testing.T) {
	p := buildRanks(t)
	slow := clitest.WriteConfig(t, "weather v1\nrank 1 speed 0.3\nevery 5 for 2 rank 0 speed 0.5\n")
	for _, policy := range []string{"none", "dynamic", "hybrid"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			finish(t, p.command(dir, "parallel.ranks=2", "data.batch_size=32", "data.num_samples=320", "train.steps=60",
				"train.eval_interval=2", "checkpoint.interval_steps=25", "balance.interval=5", "balance.policy="+policy,
				"lab.weather="+slow), 0).check(t, exit.Done, "")
			checkAccounts(t, filepath.Join(dir, "run", "logs"))
		})
	}
}

// checkAccounts compares the accounts in a run's records with elapsed times.
func checkAccounts(t *testing.T, logs string) {
	t.Helper()
	var summary struct {
		Bottleneck struct {
			Parts map[string]float64 `json:"parts_seconds_per_step"`
			Step  float64            `json:"step_seconds"`
		} `json:"bottleneck"`
	}
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(logs, observe.SummaryFile)), &summary); err != nil {
		t.Fatal(err)
	}
	agree := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 0.01*want) {
			t.Errorf("%s: got %v s, want %v s within 1 %%", what, got, want)
		}
	}
	agree("the summary's parts of a step", sumOf(summary.Bottleneck.Parts), summary.Bottleneck.Step)
	apart, decisions := map[int64]bool{}, 0 // steps after which training pauses, so they are not contiguous
	eachJSON(t, filepath.Join(logs, runtime.EventsFile), func(e *runtime.Event) {
		if e.Evaluation != nil || e.Checkpoint != nil {
			apart[e.Step] = true
		}
		if b := e.Bottleneck; b != nil {
			agree("the parts of a verdict", sumOf(b.Parts), b.Seconds)
		}
	})
	eachJSON(t, filepath.Join(logs, rebalance.DecisionsFile), func(d *rebalance.DecisionLine) {
		parts := map[string]float64{"useful": float64(d.Useful)}
		for cause, seconds := range d.Lost {
			parts[cause] = float64(seconds)
		}
		if seconds := float64(d.StepSeconds); seconds > 0 {
			decisions++
			agree("the parts of a decision", sumOf(parts), seconds)
		}
	})
	records, damaged, err := runtime.ReadMetrics(filepath.Join(logs, runtime.FileName(0)))
	if err != nil || damaged > 0 || len(records) != 60 || decisions < 8 || len(apart) < 3 {
		t.Fatalf("got %d records, %d decisions, and pauses after %v: %v", len(records), decisions, apart, err)
	}
	// Between two steps, the testbed changes its conditions, which does not count as training time. A busy machine can
	// stop the process between the end of a step and the time of its record, so the test compares medians. Decisions
	// and conditions repeat every 5 steps, so each of 5 steps has its own median.
	var off, step [5][]float64
	all := 0.0 // as in the summary, without the warm-up
	for i, r := range records {
		if i < runtime.WarmUpSteps {
			continue
		}
		all += r.StepTime.Seconds()
		if !apart[r.Iteration-1] {
			at := r.Iteration % 5
			step[at] = append(step[at], r.StepTime.Seconds())
			off[at] = append(off[at], r.Timestamp.Sub(records[i-1].Timestamp).Seconds()-r.StepTime.Seconds())
		}
	}
	agree("the summary's step", summary.Bottleneck.Step, all/float64(len(records)-runtime.WarmUpSteps))
	for at := range off {
		if got, want := stats.Median(off[at]), stats.Median(step[at]); !(math.Abs(got) <= 0.01*want+0.001) {
			t.Errorf("steps %d, %d, …, without a pause before them: got %v s each, and %v s more by the clock", at,
				at+5, want, got)
		}
	}
}

func sumOf(parts map[string]float64) (sum float64) {
	for _, seconds := range parts {
		sum += seconds
	}
	return sum
}

// eachJSON calls f for each line of a file of JSON lines.
func eachJSON[T any](t *testing.T, path string, f func(*T)) {
	t.Helper()
	for line := range strings.Lines(string(clitest.ReadFile(t, path))) {
		v := new(T)
		if err := json.Unmarshal([]byte(line), v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		f(v)
	}
}
