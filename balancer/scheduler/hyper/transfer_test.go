package hyper

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// experienced returns an Affinity that has watched a run of the default cluster under a policy.
func experienced(t testing.TB, o Options, policy string, seed uint64, jobs int) *Affinity {
	t.Helper()
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: 0.8, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := scheduler.New(policy, scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := sim.State()
	if err := p.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	a := affinity(t, o)
	a.Reset(s.Cluster, s.Workload)
	for !sim.Done() {
		a.Watch(sim.State())
		if action := p.Decide(sim.State()); action.Verb != scheduler.Wait {
			if err := sim.Apply(action); err != nil {
				t.Fatal(err)
			}
		} else if !sim.Next(math.Inf(1)) {
			break
		}
	}
	a.Watch(sim.State())
	a.refresh()
	return a
}

// transfer compares the scores of jobs of another workload with the speeds of these jobs. sign is the fraction of pairs
// (job, type of GPU) whose score has the right sign. correlation is the correlation of scores and relative speeds.
func transfer(t testing.TB, a *Affinity, seed uint64) (sign, correlation float64) {
	t.Helper()
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 200, Load: 0.8, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	s := state(setup.Cluster, w, setup.Speeds)
	a.Reset(setup.Cluster, w)
	first := make([]int, len(setup.Cluster.Types)) // one GPU of each type
	for gpu := len(setup.Cluster.GPUs) - 1; gpu >= 0; gpu-- {
		first[setup.Cluster.GPUs[gpu].Type] = gpu
	}
	var n, right, sx, sy, sxx, syy, sxy float64
	for job := range w.Jobs {
		j := &w.Jobs[job]
		best := 0.0
		for typ := range first {
			best = max(best, setup.Speeds.Alone(j.Kind, typ, j.GPUs, false))
		}
		for typ, gpu := range first {
			x, y := a.Score(s, job, gpu), setup.Speeds.Alone(j.Kind, typ, j.GPUs, false)/best
			if (x > 0) == (y >= a.options.Well) {
				right++
			}
			n, sx, sy, sxx, syy, sxy = n+1, sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
		}
	}
	return right / n, (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
}

// TestScoresOfUnseenJobsFollowTheirSpeeds checks that placements of one workload predict the speeds of another
// workload.
func TestScoresOfUnseenJobsFollowTheirSpeeds(t *testing.T) {
	for _, dimension := range []int{1000, Dimension} {
		var sign, correlation float64
		const seeds = 20
		for seed := range uint64(seeds) {
			a := experienced(t, Options{Dimension: dimension}, "fcfs", seed, 300)
			s, c := transfer(t, a, 1000+seed)
			sign, correlation = sign+s/seeds, correlation+c/seeds
		}
		t.Logf("%d components: sign %.3f, correlation %.3f", dimension, sign, correlation)
		if sign < 0.9 || correlation < 0.75 { // without any information, sign is about 0.5 and correlation is 0
			t.Errorf("%d components: got the right sign in %.2f of the pairs and a correlation of %.2f, want at least 0.9 and 0.75",
				dimension, sign, correlation)
		}
	}
}
