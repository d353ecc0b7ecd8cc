package simulate_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// On the default cluster, policy sia must solve all its integer programs to the optimum, also with a long queue.
// Without stops, each job must run once.
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

// nodes contains speeds on two types of GPU. Type 1 is twice as fast as type 0 for kind 0, and equally fast for kind 1.
type nodes struct{}

func (nodes) Alone(kind, typ, n int, _ bool) float64 {
	if kind == 0 && typ == 1 {
		return 2 * float64(n)
	}
	return float64(n)
}
func (nodes) Shared(int, int, int, int) (float64, bool) { return 0, false }
func (nodes) Mixed(int, []int, bool) (float64, bool)    { return 0, false }

// A job waits for CPU cores of machines that run other jobs. These jobs must make progress meanwhile, although a
// restart takes as long as a round.
func TestSiaLetsNeighboursWork(t *testing.T) {
	types := []scheduler.GPUType{{Name: "slow", Memory: 10, Bandwidth: 1, Compute: 1},
		{Name: "fast", Memory: 10, Bandwidth: 1, Compute: 1}}
	c := workload.NewCluster(types, workload.MachineSpec{Count: 1, GPUs: 2, CPUs: 8, Memory: 100, Network: 10},
		workload.MachineSpec{Count: 1, Type: 1, GPUs: 4, CPUs: 8, Memory: 100, Network: 10})
	w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "large", Save: 30, Load: 30}, {Name: "small", Save: 30,
		Load: 30}}}
	for range 3 { // these jobs use all GPUs
		w.Jobs = append(w.Jobs, scheduler.Job{Kind: 1, Work: 6000, GPUs: 2, CPUs: 1})
	}
	// The job needs 2 GPUs with 4 cores each, so a machine cannot hold it together with a small job.
	w.Jobs = append(w.Jobs, scheduler.Job{Kind: 0, Arrival: 10, Work: 6000, GPUs: 2, CPUs: 4})
	p, err := scheduler.New("sia", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(p, c, w, nodes{}, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stops := 0
	for i, job := range r.Jobs {
		stops += job.Stops
		if job.Finish > 6200 { // without stops, each of these jobs would run for 3000 s
			t.Errorf("job %d ends at %v s after %d stops, want an end before 6200 s", i, job.Finish, job.Stops)
		}
	}
	if stops > 1 {
		t.Errorf("got %d stops, want at most 1", stops)
	}
}
