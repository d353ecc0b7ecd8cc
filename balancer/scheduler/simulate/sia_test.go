package simulate_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// On the default cluster, policy sia must solve all its integer programs to the optimum, also with a long queue. If it
// may not stop jobs, each job must run once.
func TestSiaIsExactOnTheDefaultCluster(t *testing.T) {
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 200, Load: 1.5, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		p, err := scheduler.New("sia", scheduler.Options{Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gaps := p.(scheduler.Approximate).Gaps()
		if gaps.Problems < 100 || gaps.Cut > 0 || gaps.Largest > 0 {
			t.Errorf("keep %v: got %+v, want at least 100 problems, all solved", keep, gaps)
		}
		stops := 0
		for _, job := range r.Jobs {
			stops += job.Stops
		}
		if keep != (stops == 0) {
			t.Errorf("keep %v: got %d stops", keep, stops)
		}
	}
}
