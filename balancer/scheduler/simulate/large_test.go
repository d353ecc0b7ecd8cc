package simulate_test

import (
	"cmp"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// manyGPUs returns a cluster of fast and slow GPUs in machines of 4, with jobs of one kind that use one GPU each.
func manyGPUs(t testing.TB, machines, jobs int, load float64) (*workload.Setup, *scheduler.Workload) {
	t.Helper()
	const fast, slow = 2.33, 1 // steps/s
	types := []scheduler.GPUType{{Name: "fast"}, {Name: "slow"}}
	setup := &workload.Setup{
		Cluster: workload.NewCluster(types,
			workload.MachineSpec{Count: machines, Type: 0, GPUs: 4, Network: math.NaN()},
			workload.MachineSpec{Count: machines, Type: 1, GPUs: 4, Network: math.NaN()}),
		Kinds:  []scheduler.Kind{{Name: "one"}},
		Shapes: []workload.Shape{{Weight: 1, Sizes: []float64{1}, Seconds: 1800, Sigma: 0.6}},
		Speeds: &workload.Table{
			Kinds: []workload.Rates{{Types: [][]workload.Rate{{{GPUs: 1, Packed: fast}}, {{GPUs: 1, Packed: slow}}}}}},
	}
	if err := setup.Speeds.Build(len(types)); err != nil {
		t.Fatal(err)
	}
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Seed: 1, Load: load})
	if err != nil {
		t.Fatal(err)
	}
	return setup, w
}

// manyJobs returns a cluster of half Volta and half Turing GPUs in machines of 4. Its jobs have the default kinds,
// without sharing of GPUs. With load 0, all jobs arrive together. If memory is set, each job needs a different amount
// of memory.
func manyJobs(t testing.TB, gpus, jobs int, load float64, memory bool) (*workload.Setup, *scheduler.Workload) {
	t.Helper()
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: gpus / 8, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 512 << 30,
			Network: math.NaN()},
		workload.MachineSpec{Count: gpus / 8, Type: workload.Turing, GPUs: 4, CPUs: 64, Memory: 512 << 30,
			Network: math.NaN()})
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: cmp.Or(load, 0.5), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	setup.Speeds.Pairs = nil
	if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
		t.Fatal(err)
	}
	for i := range w.Jobs {
		if load == 0 {
			w.Jobs[i].Arrival = 0
		}
		if memory {
			w.Jobs[i].Memory += float64(1+i) * (1 << 18) // below 128 GiB, a quarter of a machine
		}
	}
	return setup, w
}

// TestManyGPUs runs jobs of one kind on many fast and as many slow GPUs. The queue contains more jobs than gang plans
// for, and all planned jobs wait for fast GPUs. The slow GPUs must run other jobs in the meantime.
func TestManyGPUs(t *testing.T) {
	machines, jobs, load := 10, 800, 2.0 // number of machines of each type
	if needtest.Large.On() {
		machines, jobs, load = 25, 5000, 1.3 // values of the table in docs/benchmarks/scheduling.md
	}
	setup, w := manyGPUs(t, machines, jobs, load)
	completion := map[string]float64{} // seconds
	for _, c := range []struct {
		name, policy string
		options      scheduler.Options
	}{
		{"maxmin", "maxmin", scheduler.Options{}},
		{"srf", "srf", scheduler.Options{}},
		{"gang", "gang", scheduler.Options{}},
		{"gang with short plans", "gang", scheduler.Options{ShortPlan: true}},
	} {
		p, err := scheduler.New(c.policy, c.options)
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := compare.FiguresOf(w, r)
		if err != nil {
			t.Fatal(err)
		}
		completion[c.name] = f.Completion
		t.Logf("%-21s: completion %.0f s, %.1f jobs/h, utilization %.1f %%", c.name, f.Completion, f.Throughput,
			100*f.Utilization)
	}
	if got, most := completion["gang"], 1.25*completion["srf"]; !(got < most) {
		t.Errorf("gang: got a mean completion time of %.0f s, want less than %.0f s, 1.25 times that of srf, which leaves no GPU idle",
			got, most)
	}
	if got, most := completion["gang"], completion["gang with short plans"]; !(got < most) {
		t.Errorf("gang: got a mean completion time of %.0f s, want less than %.0f s, that of short plans", got, most)
	}
}

// BenchmarkThousandGPUs runs 1,600 jobs on 1,000 GPUs, where the plans of gang are long.
func BenchmarkThousandGPUs(b *testing.B) {
	setup, w := manyGPUs(b, 125, 1600, 5)
	for b.Loop() {
		p, err := scheduler.New("gang", scheduler.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
