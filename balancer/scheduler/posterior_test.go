package scheduler_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Some jobs have not finished, most of them jobs with large errors. The draws for new jobs must have the mean error of
// all jobs. The mean of the finished jobs alone must be too small; otherwise the test proves nothing.
func TestDrawsOfTheWorkOfJobs(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	const n, fresh = 4000, 2000
	work, stated, remaining := make([]float64, n), make([]float64, n), make([]float64, n)
	var all, finished, drawn, finishedJobs float64
	for job := range n {
		stated[job] = 100 * math.Exp(0.1*random.NormFloat64())
		work[job] = stated[job] * math.Exp(random.NormFloat64())
		remaining[job] = max(0, work[job]-300*math.Exp(random.NormFloat64()))
		if job >= n-fresh {
			remaining[job] = work[job]
			continue
		}
		e := work[job] / stated[job]
		all += min(e, 10) / (n - fresh)
		if remaining[job] == 0 {
			finished, finishedJobs = finished+min(e, 10), finishedJobs+1
		}
	}
	draws := scheduler.Draws(stated, work, remaining, 1)
	for job, x := range draws {
		switch done := work[job] - remaining[job]; {
		case remaining[job] == 0 && x != work[job]:
			t.Fatalf("job %d: got %v steps, want %v, the work of a finished job", job, x, work[job])
		case remaining[job] > 0 && !(x > done):
			t.Fatalf("job %d: got %v steps, want more than the %v steps so far", job, x, done)
		}
		if job >= n-fresh {
			drawn += min(x/stated[job], 10) / fresh
		}
	}
	t.Logf("mean error, at most 10: %.3f of all jobs, %.3f of finished jobs, %.3f drawn", all, finished/finishedJobs,
		drawn)
	if finished/finishedJobs > 0.8*all {
		t.Errorf("finished jobs have a mean error of %v, want at most 0.8 times %v", finished/finishedJobs, all)
	}
	if math.Abs(drawn-all) > 0.1*all {
		t.Errorf("got a mean error of %v, want %v within 10 %%", drawn, all)
	}
	for job, x := range scheduler.Draws(work, work, remaining, 1) {
		if x != work[job] {
			t.Fatalf("job %d with exact estimates: got %v steps, want %v", job, x, work[job])
		}
	}
}

// At a load of 0.8 with uncertain work, the mean wait over all simulations of policy easy must be that under easy.
func TestTheShadowsHaveTheWaitsOfEasy(t *testing.T) {
	setup := workload.Default()
	var mean, want, n float64
	for seed := range uint64(4) {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 2000, Load: 0.8, Seed: 300 + seed})
		if err != nil {
			t.Fatal(err)
		}
		hidden := uncertain.Options{Sigma: 1, Seed: seed}
		under := run(t, uncertain.Hide(easy(t), hidden), setup, w, simulate.Options{})
		p := limited(t, "gang", scheduler.DefaultBound)
		run(t, uncertain.Hide(p, hidden), setup, w, simulate.Options{})
		for sample := range scheduler.Samples {
			for job, at := range scheduler.ShadowOf(p, sample) {
				if at >= 0 {
					mean, want, n = mean+at-w.Jobs[job].Arrival, want+under.Jobs[job].Start-w.Jobs[job].Arrival, n+1
				}
			}
		}
	}
	t.Logf("%v starts: mean wait %.0f s in the simulations, %.0f s under easy", n, mean/n, want/n)
	if !(math.Abs(mean-want) < 0.25*want) {
		t.Errorf("got a mean wait of %v s, want that of easy, %v s, within 25 %%", mean/n, want/n)
	}
}

// Every 20th job states a thousand times its work, as jobs do that state the longest permitted time. The first of them
// that ends must correct the simulations of the others, which run already.
func TestTheShadowsForgetFarTooLongEstimates(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 8, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 512 << 30, Network: math.NaN()})
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 3000, Load: 0.8, Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Jobs {
		if w.Jobs[i].Estimate = w.Jobs[i].Work; i%20 == 0 {
			w.Jobs[i].Estimate *= 1000
		}
	}
	longest := func(p scheduler.Policy) float64 {
		return longestWait(run(t, uncertain.Hide(p, uncertain.Options{}), setup, w, simulate.Options{}), w, 0)
	}
	got, want := longest(limited(t, "gang", scheduler.DefaultBound)), longest(easy(t))
	t.Logf("longest wait: %.0f s with gang, %.0f s with easy", got, want)
	if got > 2*want {
		t.Errorf("got a longest wait of %v s, want at most twice that of easy, %v s", got, want)
	}
}
