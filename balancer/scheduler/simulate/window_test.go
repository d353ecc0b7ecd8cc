package simulate_test

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// The GPU time of the steady window must equal the GPU time from the recorded segments and the changes of the cluster.
// In a long run, Little's law must hold for all policies.
func TestSteadyWindow(t *testing.T) {
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 2000, Load: 0.6, Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	down, up := w.Jobs[100].Arrival, w.Jobs[900].Arrival // job 400 is the first job of the window
	changes := []simulate.Change{{At: down, GPU: 9}, {At: up, GPU: 9, Up: true}}
	for _, name := range []string{"easy", "srpt", "gang"} { // under gang, jobs share GPUs
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Changes: changes, Record: true})
		if err != nil {
			t.Fatal(err)
		}
		from, to := w.Jobs[400].Arrival, w.Jobs[1999].Arrival
		if r.Window == nil || r.Window.From != from || r.Window.To != to {
			t.Fatalf("%s: got window %+v, want %v to %v s", name, r.Window, from, to)
		}
		busy, covered := 0.0, make([]float64, len(setup.Cluster.GPUs))
		for _, s := range r.Segments { // segments are in the order of their starts
			for _, g := range s.GPUs {
				begin, end := max(s.From, covered[g], from), min(s.To, to)
				busy, covered[g] = busy+max(0, end-begin), max(covered[g], s.To)
			}
		}
		if math.Abs(busy-r.Window.Busy) > 1e-6*busy {
			t.Errorf("%s: got %v busy GPU seconds, want %v", name, r.Window.Busy, busy)
		}
		available := float64(len(covered))*(to-from) - (up - from)
		if math.Abs(available-r.Window.Available) > 1e-6*available {
			t.Errorf("%s: got %v available GPU seconds, want %v", name, r.Window.Available, available)
		}
		f, err := compare.FiguresOf(w, r)
		if err != nil {
			t.Fatal(err)
		}
		// At the start and at the end of the window, at most a few dozen of its 1,600 jobs are in the cluster.
		if f.Steady == nil || math.Abs(f.Steady.Little-1) > 0.1 {
			t.Errorf("%s: got %+v, want Little's law within 10 %%", name, f.Steady)
		}
	}
	at := workload.Arrivals{Jobs: 1, Load: 0.6, Seed: 1}
	if w, err = workload.Generate(setup, at); err != nil {
		t.Fatal(err)
	}
	p, _ := scheduler.New("fcfs", scheduler.Options{})
	if r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{}); err != nil || r.Window != nil {
		t.Errorf("one job: got window %+v, %v, want none", r.Window, err)
	}
}
