package simulate_test

import (
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// apart contains speeds that are lower over several machines. In one machine, each GPU of type 0 runs at 4 steps/s, and
// each GPU of type 1 at 2 steps/s.
type apart struct{}

func (apart) Alone(_, typ, n int, spread bool) float64 {
	switch {
	case spread:
		return float64(n)
	case typ == 0:
		return 4 * float64(n)
	}
	return 2 * float64(n)
}
func (apart) Shared(int, int, int, int) (float64, bool) { return 0, false }
func (apart) Mixed(int, []int, bool) (float64, bool)    { return 0, false }

// Each machine with fast GPUs has CPU cores for only one GPU of the large job. On fast GPUs, the job therefore spans
// two machines, and is slower than on the slow GPUs.
// If gang assumed the speed within one machine, it would move the job to the fast GPUs and back at each event. The job
// would never compute.
func TestGangDoesNotMoveAJobForever(t *testing.T) {
	c := workload.NewCluster([]scheduler.GPUType{{Name: "fast", Memory: 10}, {Name: "slow", Memory: 10}},
		workload.MachineSpec{Count: 2, Type: 0, GPUs: 2, CPUs: 4, Memory: 100, Network: 10},
		workload.MachineSpec{Count: 1, Type: 1, GPUs: 2, CPUs: 16, Memory: 100, Network: 10})
	w := jobs(scheduler.Job{Work: 40, GPUs: 1}, scheduler.Job{Work: 4000, GPUs: 2, CPUs: 4})
	p, err := scheduler.New("gang", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(p, c, w, apart{}, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Jobs[1]; got.Finish != 1000 || got.Stops != 0 {
		t.Errorf("got an end at %v s after %d stops, want 1000 s without a stop: 4000 steps at 4 steps/s", got.Finish,
			got.Stops)
	}
}

// Before each move, a job must have computed for at least as long as it loaded. All moves together therefore take at
// most as much time as the work. The machines of these random clusters have few CPU cores.
func TestGangMovesHavePurpose(t *testing.T) {
	random := rand.New(rand.NewPCG(77, 1))
	moves, n := 0, 400
	for k := range n {
		w := newWorld(random)
		p, err := scheduler.New("gang", scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.options.Changes = nil
		r, err := simulate.Run(p, w.cluster, w.jobs, w.speeds, w.options)
		if err != nil {
			t.Fatalf("world %d: %v", k, err)
		}
		loads := map[int]bool{}
		for i := range r.Segments {
			v := &r.Segments[i]
			if v.Ended == scheduler.Stopped {
				moves++
				kind := &w.jobs.Kinds[w.jobs.Jobs[v.Job].Kind]
				if least := 2*kind.Load + kind.Save; loads[v.Job] && v.To-v.From < least*(1-1e-9) {
					t.Errorf("world %d: job %d moves again after %v s, want at least %v s", k, v.Job, v.To-v.From,
						least)
				}
				loads[v.Job] = true
			}
		}
	}
	if t.Logf("%d moves in %d worlds", moves, n); moves < 50 {
		t.Errorf("got %d moves, want at least 50", moves)
	}
}
