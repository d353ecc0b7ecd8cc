package analysis

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// fakeRun is a run of ranks with known speeds. The program's own code writes the files of the run.
type fakeRun struct {
	policy, scenario string
	seed             int64
	shares           []int64   // share of each rank, in samples
	speed            []float64 // speed of each rank alone, in samples/s; the time per sample is constant
	steps            int64
	noise            float64 // relative standard deviation of the times of a rank
	solo             []string
	settings         string // TOML text after [data]
	unfinished       bool
	exit             int
	decisions        string
	bare             bool // the run has no benchmark.json
}

func (f fakeRun) name() string {
	return fmt.Sprintf("%s_simple_cnn_synthetic_image_%s_seed%d", f.policy, f.scenario, f.seed)
}

func (f fakeRun) batch() (sum int64) {
	for _, share := range f.shares {
		sum += share
	}
	return sum
}

// begun returns a run that has begun, in a folder below root. The run is closed at the end of the test.
func begun(t *testing.T, root, name string) *experiment.Run {
	t.Helper()
	run, err := experiment.Open(experiment.Options{OutputDir: root, Name: name, Resume: experiment.ResumeNone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	return run
}

// write writes the folder of the run below root.
func (f fakeRun) write(t *testing.T, root string) string {
	t.Helper()
	run, err := experiment.Open(experiment.Options{OutputDir: root, Name: f.name(), Resume: experiment.ResumeNone,
		Steps: f.steps})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.Begin(); err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("[experiment]\nname = %q\nseed = %d\nlog_dir = \"\"\n[balance]\npolicy = %q\nfixed_shares = []\n[train]\nsteps = %d\n[optimizer]\nname = \"sgd\"\nlr = 0.05\n[data]\nbatch_size = %d\n%s",
		f.name(), f.seed, f.policy, f.steps, f.batch(), f.settings)
	if err := run.StoreConfig(settings, "hetero-train test"); err != nil {
		t.Fatal(err)
	}
	for rank, records := range f.records() {
		w, _, err := runtime.Open(filepath.Join(run.LogDir(), runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			w.Append(&records[i])
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if f.decisions != "" {
		writeFile(t, filepath.Join(run.LogDir(), balanceFile), f.decisions)
	}
	if !f.bare {
		text, err := json.Marshal(benchmark{Schema: 1, Policy: f.policy, Model: "simple_cnn",
			Dataset: "synthetic_image", Scenario: f.scenario, Seed: f.seed,
			Ranks: len(f.shares), BatchSize: f.batch(), Solo: f.solo, Machine: "test machine, 4 CPUs"})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(run.Dir, benchmarkFile), string(text))
	}
	if f.unfinished {
		return run.Dir
	}
	result := experiment.Result{Steps: f.steps, Exit: f.exit, Program: "hetero-train test", Model: "simple_cnn",
		Dataset: "synthetic_image", Device: "cpu:0", Precision: "f32", BatchSize: f.batch(), Ranks: len(f.shares)}
	if f.exit != 0 {
		result.Error = "it broke"
	}
	if err := run.WriteResult(result); err != nil {
		t.Fatal(err)
	}
	return run.Dir
}

// records returns the records of each rank. Each rank waits for the slowest one.
func (f fakeRun) records() [][]runtime.Record {
	random := rand.New(rand.NewPCG(uint64(f.seed), uint64(len(f.policy))))
	records := make([][]runtime.Record, len(f.shares))
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	end := start
	for step := int64(1); step <= f.steps; step++ {
		own, slowest := make([]time.Duration, len(f.shares)), time.Duration(0)
		for rank, share := range f.shares {
			seconds := float64(share) / f.speed[rank] * (1 + f.noise*random.NormFloat64())
			own[rank] = time.Duration(seconds*1e6).Round(1) * time.Microsecond // timestamps have a resolution of 1 µs
			slowest = max(slowest, own[rank])
		}
		end = end.Add(slowest)
		for rank, share := range f.shares {
			exchanges := min(time.Millisecond, slowest-own[rank]) // the slowest rank waits for no other rank
			records[rank] = append(records[rank], runtime.Record{Iteration: step, Rank: rank, Timestamp: end,
				BatchSize: share, Values: telemetry.Values{telemetry.Loss: 2.3 * math.Exp(-float64(step)/50)},
				Forward: own[rank] / 4, Backward: own[rank] - own[rank]/4 + exchanges,
				Exchanges: exchanges, Communication: slowest - own[rank] - exchanges,
				StepTime: slowest, TrainingTime: end.Sub(start),
				Telemetry: telemetry.Sample{telemetry.Utilization: 100 * own[rank].Seconds() / slowest.Seconds(),
					telemetry.Memory: 10, telemetry.Temperature: math.NaN(), telemetry.Power: math.NaN()}})
		}
	}
	return records
}

// fourUnequal writes a benchmark of four ranks with 400, 200, 100 and 100 samples/s, and runs of each rank alone.
func fourUnequal(t *testing.T, root string, noise float64, seeds ...int64) {
	t.Helper()
	speed := []float64{400, 200, 100, 100}
	solo := []string{"solo-0.8", "solo-0.4", "solo-0.2", "solo-0.2"}
	for i, scenario := range solo[:3] {
		fakeRun{policy: "none", scenario: scenario, seed: 1, shares: []int64{128}, speed: speed[i : i+1], steps: 60,
			noise: noise}.write(t, root)
	}
	for policy, shares := range map[string][]int64{"none": {32, 32, 32, 32}, "proportional": {56, 36, 18, 18},
		"dynamic": {60, 34, 17, 17}, "hybrid": {64, 32, 16, 16}} {
		for _, seed := range seeds {
			decisions := ""
			for step := 10; policy == "hybrid" && step <= 100; step += 10 {
				decisions += fmt.Sprintf(`{"step":%d,"policy":"hybrid","shares":[64,32,16,16],"next":[64,32,16,16],"changed":false,"reason":"settled","share_of_oracle":0.99,"imbalance":null,"lost_seconds":{"imbalance":0.001,"noise":0.002}}`+
					"\n", step)
			}
			fakeRun{policy: policy, scenario: "four-unequal", seed: seed, shares: shares, speed: speed, steps: 100,
				noise: noise, solo: solo, decisions: decisions}.write(t, root)
		}
	}
}

var defaults = Options{WarmUpSteps: -1, Replicates: 300, Confidence: 0.95, Seed: 1}

// study reads and compares the runs below root.
func study(t *testing.T, root string) *Study {
	t.Helper()
	all, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compare(all, defaults)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
