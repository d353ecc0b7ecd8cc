package scheduler_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// some reports whether a job fits on some of the listed GPUs together with the GPUs that are already chosen.
func some(s *scheduler.State, job int, list, chosen []int) bool {
	if len(chosen) == s.Workload.Jobs[job].GPUs {
		_, why := s.Fit(job, chosen)
		return why == scheduler.Fits
	}
	for i, g := range list {
		if len(s.OnGPU[g]) == 0 && some(s, job, list[i+1:], append(chosen, g)) {
			return true
		}
	}
	return false
}

// Place must find GPUs of a type if and only if some set of them can hold the job. Some jobs run only within one
// machine or only over several, and CPU cores and memory are limited. On an empty cluster, Holds must give the same
// answer.
func TestPlaceFindsGPUsIfAnySetFits(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 41))
	figure := func() float64 { return float64(random.IntN(2)) }
	found, none := 0, 0
	for n := range 3000 {
		var specs []workload.MachineSpec
		for range 1 + random.IntN(3) {
			specs = append(specs, workload.MachineSpec{Count: 1, GPUs: 1 + random.IntN(3),
				CPUs: float64(random.IntN(7)), Memory: float64(random.IntN(7)), Network: math.NaN()})
		}
		c := workload.NewCluster([]scheduler.GPUType{{Name: "one"}}, specs...)
		table := &workload.Table{Kinds: []workload.Rates{{Types: [][]workload.Rate{
			{{GPUs: 1, Packed: 1, Spread: figure()}, {GPUs: 2, Packed: figure(), Spread: figure()},
				{GPUs: 3, Packed: figure(), Spread: figure()}, {GPUs: 4, Packed: figure(), Spread: figure()}}}}}}
		if err := table.Build(1); err != nil {
			t.Fatal(err)
		}
		w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "gang"}}, Jobs: []scheduler.Job{
			{GPUs: 1, Work: 1}, {GPUs: 1 + random.IntN(4), Work: 1, CPUs: float64(random.IntN(3)),
				Memory: float64(random.IntN(3))}}}
		held := scheduler.Holds(c, w, table, 1) == nil
		all := make([]int, len(c.GPUs))
		for g := range all {
			all[g] = g
		}
		jobs := w.Jobs
		w.Jobs = jobs[:1] // New refuses a job that does not fit on the cluster
		sim, err := simulate.New(c, w, table, simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.Jobs = jobs
		s := sim.State()
		for _, occupied := range []bool{false, true} {
			if occupied {
				start := scheduler.Action{Verb: scheduler.Start, GPUs: []int{random.IntN(len(all))}}
				if err := sim.Apply(start); err != nil {
					t.Fatal(err)
				}
			}
			want := some(s, 1, all, nil)
			gpus, speed, got := s.Place(1, 0, nil)
			if got != want || !occupied && held != want {
				t.Fatalf("case %d, occupied %v: got GPUs: %v, in an empty cluster: %v, want %v", n, occupied, got, held,
					want)
			}
			if !got {
				none++
				continue
			}
			found++
			if v, why := s.Fit(1, gpus); why != scheduler.Fits || v != speed {
				t.Fatalf("case %d: got GPUs %v with %v steps/s, but Fit states %v, %v steps/s", n, gpus, speed, why, v)
			}
		}
	}
	if t.Logf("%d placements, %d refusals", found, none); found < 1000 || none < 100 {
		t.Errorf("got %d placements and %d refusals, want at least 1000 and 100", found, none)
	}
}

// If a machine lacks memory for a reservation, it must not count as a negative number of GPUs, which would cancel GPUs
// of other machines.
func TestMultiplesOfANegativeCapacity(t *testing.T) {
	for _, c := range []struct {
		have, need float64
		want       int
	}{{-5, 2, 0}, {5, 2, 2}, {-5, 0, 1 << 30}, {4, 2 * (1 + 1e-10), 2}} {
		if got := scheduler.Multiples(c.have, c.need); got != c.want {
			t.Errorf("a demand of %v in %v: got %d, want %d", c.need, c.have, got, c.want)
		}
	}
}
