package dqn

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// TestHoldOutTables prints the tables of docs/benchmarks/scheduling.md that compare the trained network with all other
// policies. Their workloads were not used in training. The test also checks the statements below these tables.
func TestHoldOutTables(t *testing.T) {
	needtest.Large.Need(t, "takes minutes")
	dev := cpuDevice(t)
	var gone, failing []simulate.Change
	for gpu := 4; gpu < 8; gpu++ {
		gone = append(gone, simulate.Change{GPU: gpu})
	}
	failing = []simulate.Change{{At: 4000, GPU: 12}, {At: 4000, GPU: 13}, {At: 4000, GPU: 14}, {At: 4000, GPU: 15},
		{At: 20000, GPU: 12, Up: true},
		{At: 20000, GPU: 13, Up: true}, {At: 20000, GPU: 14, Up: true}, {At: 20000, GPU: 15, Up: true}}
	for _, scenario := range []struct {
		name     string
		arrivals workload.Arrivals
		changes  []simulate.Change
		gangs    int  // largest number of GPUs of a job; 0: any
		random   bool // each workload has its own cluster, from workload.Random
	}{
		{name: "load 0.8", arrivals: workload.Arrivals{Jobs: 200, Load: 0.8}},
		{name: "load 1.0", arrivals: workload.Arrivals{Jobs: 200, Load: 1}},
		{name: "load 1.5", arrivals: workload.Arrivals{Jobs: 200, Load: 1.5}},
		{name: "surge of machine-learning jobs",
			arrivals: workload.Arrivals{Jobs: 200, Load: 0.8, Surge: 4, SurgeFrom: 0.3, SurgeTo: 0.6}},
		{name: "one Volta machine less, jobs of at most 4 GPUs", arrivals: workload.Arrivals{Jobs: 200, Load: 0.6},
			changes: gone, gangs: 4},
		{name: "the Radeon machine fails and returns", arrivals: workload.Arrivals{Jobs: 200, Load: 0.8},
			changes: failing},
		{name: "random clusters, load 0.8", arrivals: workload.Arrivals{Jobs: 200, Load: 0.8}, random: true},
		{name: "random clusters, load 1.2", arrivals: workload.Arrivals{Jobs: 200, Load: 1.2}, random: true},
	} {
		var seeds []uint64
		for i := range uint64(100) {
			// Neither the training nor the choice of the policy's options used these seeds.
			seeds = append(seeds, 10000+i)
		}
		var runs []compare.Runs
		for _, name := range append(scheduler.Names(), PolicyName) {
			policy, err := scheduler.New(name, scheduler.Options{})
			if name == PolicyName {
				var trained *Policy
				if trained, err = OpenTrained(dev, scheduler.Options{}); err == nil {
					defer end(t, &Learner{net: trained.net})
				}
				policy = trained
			}
			if err != nil {
				t.Fatal(err)
			}
			r := compare.Runs{Policy: name}
			for _, seed := range seeds {
				setup := workload.Default()
				if scenario.random {
					setup = workload.Random(seed)
				}
				scenario.arrivals.Seed = seed
				w, err := workload.Generate(setup, scenario.arrivals)
				if err != nil {
					t.Fatal(err)
				}
				for i := range w.Jobs {
					if j := &w.Jobs[i]; scenario.gangs > 0 && j.GPUs > scenario.gangs {
						j.GPUs = scenario.gangs
					}
				}
				result, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds,
					simulate.Options{Changes: scenario.changes, Checkpoint: 600})
				if err != nil {
					t.Fatal(err)
				}
				f, err := compare.FiguresOf(w, result)
				if err != nil {
					t.Fatal(err)
				}
				r.Figures = append(r.Figures, f)
			}
			runs = append(runs, r)
		}
		t.Logf("%s\n%s", scenario.name, table(t, scenario.name, seeds, runs))
	}
}

// table compares all policies with fcfs, and policy dqn with each of them, as rows of Markdown.
func table(t *testing.T, scenario string, seeds []uint64, runs []compare.Runs) string {
	var out strings.Builder
	for i, r := range runs {
		study, err := compare.New("fcfs", seeds, runs)
		if err != nil {
			t.Fatal(err)
		}
		row := study.Rows[i]
		fmt.Fprintf(&out, "| %s | %.0f ± %.0f | %.1f ± %.1f | %.1f %% | %.1f |", r.Policy, row.Completion.Mean,
			row.Completion.Deviation,
			row.Throughput.Mean, row.Throughput.Deviation, 100*row.Utilization.Mean, row.HyperScore.Mean)
		if r.Policy != PolicyName {
			if study, err = compare.New(r.Policy, seeds, []compare.Runs{r, runs[len(runs)-1]}); err != nil {
				t.Fatal(err)
			}
			d := study.Rows[1]
			less := func(x float64) float64 { return 100 * (1 - 1/x) }
			switch r.Policy {
			case "fcfs", "static", "rule": // docs/benchmarks/scheduling.md states 40 to 84 % and 5 to 42 %, rounded
				if less(d.CompletionRatio.Mean) < 39.5 || d.ThroughputRatio.Mean < 1.045 {
					t.Errorf("%s, against %s: got completion times that are %.1f %% shorter and a throughput that is %.1f %% higher, want at least 40 %% and 5 %%",
						scenario, r.Policy, less(d.CompletionRatio.Mean), 100*(d.ThroughputRatio.Mean-1))
				}
			case "gang": // docs/benchmarks/scheduling.md states 2 to 12 %, with each interval above zero
				if less(d.CompletionRatio.Low) <= 0 {
					t.Errorf("%s, against gang: got completion times that are %.1f %% shorter (%.1f to %.1f), want an interval above zero",
						scenario,
						less(d.CompletionRatio.Mean), less(d.CompletionRatio.Low), less(d.CompletionRatio.High))
				}
			}
			fmt.Fprintf(&out, " %.1f %% (%.1f to %.1f), p %.1g | %+.1f %% (%+.1f to %+.1f), p %.1g |",
				less(d.CompletionRatio.Mean), less(d.CompletionRatio.Low),
				less(d.CompletionRatio.High), d.CompletionRatio.Wilcoxon, 100*(d.ThroughputRatio.Mean-1),
				100*(d.ThroughputRatio.Low-1),
				100*(d.ThroughputRatio.High-1), d.ThroughputRatio.Wilcoxon)
		} else {
			out.WriteString(" | |")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// BenchmarkTraining measures episodes of the default training: decisions, simulation and updates.
func BenchmarkTraining(b *testing.B) {
	o := Defaults()
	l := learnerOf(b, cpuDevice(b), o, DefaultProblem())
	defer end(b, l)
	b.ResetTimer()
	if err := l.Run(context.Background(), int64(b.N), nil, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(l.Progress().Decisions)/math.Max(1, float64(l.Progress().Episodes)), "decisions/episode")
}
