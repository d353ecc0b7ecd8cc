package scheduler_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// world returns a random cluster without limits of the network, and jobs of the default kinds.
func world(random *rand.Rand) (*workload.Setup, *scheduler.Workload) {
	setup := workload.Default()
	specs := []workload.MachineSpec{
		{Count: 1, Type: workload.Volta, GPUs: 4, CPUs: 32, Memory: 256 << 30, Network: math.NaN()}}
	for range random.IntN(4) {
		specs = append(specs, workload.MachineSpec{Count: 1, Type: random.IntN(3), GPUs: 1 + random.IntN(4),
			CPUs: float64(4 + random.IntN(30)), Memory: float64(16+random.IntN(200)) * (1 << 30), Network: math.NaN()})
	}
	setup.Cluster = workload.NewCluster(setup.Cluster.Types, specs...)
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 10 + random.IntN(50), Load: 0.3 + 1.5*random.Float64(),
		Burst: 1 + 3*random.Float64(), Seed: random.Uint64()})
	if err != nil {
		panic(err)
	}
	for i := range w.Jobs {
		if scheduler.Holds(setup.Cluster, w, setup.Speeds, i) != nil {
			w.Jobs[i].GPUs = 1
		}
	}
	return setup, w
}

// limited returns a policy whose bound follows policy easy.
func limited(t *testing.T, name string, b scheduler.Bound) scheduler.Policy {
	t.Helper()
	p, err := scheduler.New(name, scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.Limit(p, b, scheduler.Options{})
}

func easy(t *testing.T) scheduler.Policy {
	t.Helper()
	p, err := scheduler.New("easy", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run simulates a policy.
func run(t *testing.T, p scheduler.Policy, setup *workload.Setup, w *scheduler.Workload,
	o simulate.Options) *scheduler.Result {
	t.Helper()
	r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// longestWait returns the longest wait of the jobs with a number of GPUs, or of all jobs if gpus is 0, in s.
func longestWait(r *scheduler.Result, w *scheduler.Workload, gpus int) (wait float64) {
	for i := range r.Jobs {
		if gpus == 0 || w.Jobs[i].GPUs == gpus {
			wait = max(wait, r.Jobs[i].Start-w.Jobs[i].Arrival)
		}
	}
	return wait
}

// The bound follows the waits under policy easy. Each start of the simulation next to the policy must be bit-equal to
// that of a simulation of policy easy alone. The starts must not depend on the policy.
func TestTheShadowIsPolicyEasy(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 23))
	starts, waits := 0, 0
	for n := range 200 {
		setup, w := world(random)
		p := limited(t, []string{"gang", "srf", "fcfs"}[n%3], scheduler.DefaultBound)
		run(t, p, setup, w, simulate.Options{})
		want := run(t, easy(t), setup, w, simulate.Options{})
		for job, at := range scheduler.Shadow(p) {
			if at < 0 {
				continue // the run has ended before
			}
			starts++
			if at > w.Jobs[job].Arrival {
				waits++
			}
			if at != want.Jobs[job].Start {
				t.Fatalf("world %d: job %d starts at %v s in the simulation next to the policy, want %v s as under easy",
					n, job, at, want.Jobs[job].Start)
			}
		}
	}
	if t.Logf("%d starts, %d after a wait", starts, waits); starts < 4000 || waits < 1000 {
		t.Errorf("got %d starts, %d of them after a wait, want at least 4000 and 1000", starts, waits)
	}
}

// A third of the jobs arrives at once, the others some time later. When the last jobs arrive, the queue is longer than
// ever before, and the simulation of easy is continued without further arrivals. The longest waits of the continuation
// must be bit-equal to those under policy easy.
func TestTheContinuedShadowIsPolicyEasy(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 23))
	longer := 0
	for n := range 200 {
		setup, w := world(random)
		for i := range w.Jobs {
			w.Jobs[i].Arrival = 0
			if i >= len(w.Jobs)/3 {
				w.Jobs[i].Arrival = 1000 * float64(1+n%5)
			}
		}
		p := limited(t, "gang", scheduler.DefaultBound)
		run(t, p, setup, w, simulate.Options{})
		r := run(t, easy(t), setup, w, simulate.Options{})
		for gpus := 1; gpus <= 8; gpus++ {
			want := longestWait(r, w, gpus)
			if want > 5000 {
				longer++
			}
			if got := scheduler.Ahead(p, gpus); got != want {
				t.Fatalf("world %d: jobs with %d GPUs wait for at most %v s in the continued simulation, want %v s",
					n, gpus, got, want)
			}
		}
	}
	if t.Logf("%d longest waits above 5,000 s", longer); longer < 100 {
		t.Errorf("got %d longest waits above 5,000 s, want at least 100", longer)
	}
}

// Nearly all jobs arrive while most GPUs have failed for a minute. A simulation that is continued with the other GPUs
// would have very long waits, which would count for the rest of the run.
func TestAFailureOfGPUsIsNotContinued(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 23))
	for n := range 50 {
		setup, w := world(random)
		for i := range w.Jobs {
			w.Jobs[i].Arrival = 10
		}
		w.Jobs[0].Arrival = 0
		var o simulate.Options
		for _, up := range []bool{false, true} {
			for gpu := 4; gpu < len(setup.Cluster.GPUs); gpu++ {
				at := 5.0
				if up {
					at = 70
				}
				o.Changes = append(o.Changes, simulate.Change{At: at, GPU: gpu, Up: up})
			}
		}
		p := limited(t, "gang", scheduler.DefaultBound)
		run(t, p, setup, w, o)
		r := run(t, easy(t), setup, w, o)
		for gpus := 1; gpus <= 8; gpus++ {
			longest := longestWait(r, w, gpus)
			// In the simulation, the first job loses no work when its GPUs fail, so the waits differ a little.
			if got := scheduler.Ahead(p, gpus); got > 1.1*longest {
				t.Fatalf("world %d: jobs with %d GPUs wait for at most %v s in the continued simulation, want at most 1.1 x %v s",
					n, gpus, got, longest)
			}
		}
	}
}

// If all estimates are three times the work, the simulation of easy must learn this from finished jobs. Otherwise its
// cluster would be overloaded, and jobs would wait much longer than under easy with the same estimates.
func TestTheShadowLearnsTheErrorOfEstimates(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 3, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 512 << 30, Network: math.NaN()})
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 1000, Load: 0.6, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Jobs {
		w.Jobs[i].Estimate = 3 * w.Jobs[i].Work
	}
	p := limited(t, "gang", scheduler.DefaultBound)
	run(t, uncertain.Hide(p, uncertain.Options{}), setup, w, simulate.Options{})
	want := run(t, uncertain.Hide(easy(t), uncertain.Options{}), setup, w, simulate.Options{})
	mean, n := [2]float64{}, 0.0
	for job, at := range scheduler.Shadow(p) {
		if at >= 0 {
			mean[0], mean[1], n = mean[0]+at-w.Jobs[job].Arrival, mean[1]+want.Jobs[job].Start-w.Jobs[job].Arrival, n+1
		}
	}
	t.Logf("%v jobs: mean wait %.1f s in the simulation, %.1f s under easy", n, mean[0]/n, mean[1]/n)
	// the simulation does not know the error before the first job ends
	if n < 900 || !(mean[0] > 0.9*mean[1] && mean[0] < 1.1*mean[1]) {
		t.Errorf("%v jobs: got a mean wait of %v s, want that of easy, %v s, within 10 %%", n, mean[0]/n, mean[1]/n)
	}
}

// keeping records the latest time of its start for each job that becomes the first of the overdue jobs.
type keeping struct {
	scheduler.Policy
	limited scheduler.Policy
	latest  map[int]float64 // by job: latest time of its start, in s
	since   map[int]float64 // by job: when it became the first one, in s
}

func (p *keeping) Decide(s *scheduler.State) scheduler.Action {
	a := p.Policy.Decide(s)
	if a.Verb == scheduler.Wait || a.Verb == scheduler.Stop {
		if head, at := scheduler.Promise(p.limited, s); head >= 0 {
			if _, known := p.latest[head]; !known {
				p.latest[head], p.since[head] = at, s.Now
			}
		}
	}
	return a
}

// When a job becomes the first of the overdue jobs, the policy predicts when the running jobs free the GPUs for it. The
// job must start at this time at the latest. No start of another job may delay it, and stops may only make its start
// earlier. This holds if the network does not slow jobs down, and no GPU fails. Without sharing, it also holds for a
// job that waits for CPU cores.
func TestNoStartDelaysAJobThatEasyWouldHaveStarted(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 31))
	heads, waited, sooner, stops := 0, 0, 0, 0
	for n := range 300 {
		setup, w := world(random)
		if n%2 == 0 {
			setup.Speeds.Pairs = nil
			if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
				t.Fatal(err)
			}
		}
		b := scheduler.Bound{Easy: 2 * random.Float64(), Seconds: 200 * random.Float64()}
		if b.Easy < 0.2 {
			b.Easy = 0.2
		}
		inner := limited(t, []string{"gang", "srf", "allox"}[n%3], b)
		p := &keeping{Policy: inner, limited: inner, latest: map[int]float64{}, since: map[int]float64{}}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		if err != nil {
			t.Fatalf("world %d: %v", n, err)
		}
		for i := range r.Jobs {
			stops += r.Jobs[i].Stops
		}
		for job, latest := range p.latest {
			heads++
			got := math.Inf(1)
			for i := range r.Segments {
				if v := &r.Segments[i]; v.Job == job && v.From >= p.since[job] {
					got = min(got, v.From)
				}
			}
			if latest > p.since[job] {
				waited++
			}
			if got < latest*(1-1e-9) {
				sooner++
			}
			if got > latest*(1+1e-9) {
				t.Errorf("world %d: job %d starts at %.6g s, want at most %.6g s; it became overdue at %.6g s", n, job,
					got, latest, scheduler.Due(inner, job))
			}
		}
	}
	t.Logf("%d overdue jobs, of which %d waited and %d started sooner; %d stops", heads, waited, sooner, stops)
	if waited < 300 || sooner < 100 || stops < 300 {
		t.Errorf("got %d overdue jobs that waited, %d that started sooner and %d stops, want at least 300, 100 and 300",
			waited, sooner, stops)
	}
}

// late hides the journal from a policy, so that it reads the whole state at each decision.
type late struct{ scheduler.Policy }

func (p late) Decide(s *scheduler.State) scheduler.Action {
	whole := *s
	whole.Journal = nil
	return p.Policy.Decide(&whole)
}

// A bound that follows policy easy must not depend on the way in which a policy reads a state: with a journal or
// without it, with the remaining steps of all jobs or only of those that changed. Two runs must be equal. The jobs have
// estimates in half of the worlds, and GPUs fail.
func TestTheFollowingBoundIsDeterministic(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 2))
	for n := range 100 {
		setup, w := world(random)
		options := simulate.Options{Record: true}
		at := w.Jobs[0].Arrival
		for range random.IntN(6) {
			at += 1000 * random.ExpFloat64()
			options.Changes = append(options.Changes,
				simulate.Change{At: at, GPU: random.IntN(len(setup.Cluster.GPUs))})
		}
		for g := range setup.Cluster.GPUs {
			options.Changes = append(options.Changes, simulate.Change{At: at + 500, GPU: g, Up: true})
		}
		p := limited(t, "gang", scheduler.Bound{Easy: 1, Seconds: 100})
		text := func(wrap func(scheduler.Policy) scheduler.Policy) string {
			q := wrap(p)
			if n%2 == 0 {
				q = uncertain.Hide(q, uncertain.Options{Sigma: 1, Seed: uint64(n)})
			}
			r, err := simulate.Run(q, setup.Cluster, w, setup.Speeds, options)
			if err != nil {
				t.Fatalf("world %d: %v", n, err)
			}
			return fmt.Sprint(r.Segments, r.Jobs, r.End, r.Decisions, r.Events)
		}
		want := text(func(p scheduler.Policy) scheduler.Policy { return p })
		if got := text(func(p scheduler.Policy) scheduler.Policy { return p }); got != want {
			t.Fatalf("world %d: two runs differ", n)
		}
		if got := text(func(p scheduler.Policy) scheduler.Policy { return late{p} }); got != want {
			t.Fatalf("world %d: the schedule differs without the journal", n)
		}
		eager := func(p scheduler.Policy) scheduler.Policy { return struct{ scheduler.Policy }{p} }
		if got := text(eager); got != want {
			t.Fatalf("world %d: the schedule differs if the simulator updates all jobs", n)
		}
	}
}

// swapping compares each search for jobs to stop with one that tries all jobs that wait.
type swapping struct {
	scheduler.Policy
	t           *testing.T
	world       int
	found, none int
	turn        int
	counts      *scheduler.Searches
}

func (p *swapping) Decide(s *scheduler.State) scheduler.Action {
	before, _ := scheduler.Chosen(p.Policy)
	a := p.Policy.Decide(s)
	if before >= 0 || len(s.Queue) == 0 || a.Verb == scheduler.Start {
		return a
	}
	p.turn = p.counts.Searched(p.Policy, s, p.turn)
	want, stops, overdue := scheduler.Swap(p.Policy, s)
	if overdue {
		return a
	}
	got, victims := scheduler.Chosen(p.Policy)
	if a.Verb == scheduler.Stop {
		victims = append(slices.Clone(victims), a.Job)
		p.found++
	} else {
		p.none++
	}
	if got != want || !slices.Equal(victims, stops) {
		p.t.Fatalf("world %d at %v s: got a stop of jobs %v for job %d, want %v for job %d", p.world, s.Now, victims,
			got, stops, want)
	}
	return a
}

// The search for jobs to stop goes through classes of jobs that wait. It must give the result of a search through all
// jobs. This must hold if all demands differ, if machines have few CPU cores and little memory, and if jobs run only
// over several machines.
func TestStopsDoNotDependOnClasses(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 7))
	found, none := 0, 0
	var counts scheduler.Searches
	for n := range 400 {
		setup, w := world(random)
		if random.IntN(2) == 0 {
			setup.Speeds.Pairs = nil
		}
		if random.IntN(3) == 0 {
			for k := range setup.Speeds.Kinds {
				for _, rates := range setup.Speeds.Kinds[k].Types {
					for i := range rates {
						if rates[i].GPUs == 2 {
							rates[i].Packed = 0
						}
					}
				}
			}
		}
		if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
			t.Fatal(err)
		}
		for k := range w.Kinds { // some waits exceed the cost of some checkpoints only
			w.Kinds[k].Save *= 1 + 30*random.Float64()
		}
		cpus, memory, kinds := random.IntN(2) == 0, random.IntN(3) > 0, 1+random.IntN(len(w.Kinds))
		for i := range w.Jobs {
			j := &w.Jobs[i]
			j.Kind %= kinds
			if memory {
				j.Memory *= 0.3 + random.Float64()
			}
			if cpus {
				j.CPUs = math.Floor(j.CPUs * (0.3 + random.Float64()))
			}
			if scheduler.Holds(setup.Cluster, w, setup.Speeds, i) != nil {
				j.GPUs, j.CPUs, j.Memory = 1, 1, 1<<30
			}
		}
		bound := scheduler.Bound{Easy: 20, Seconds: 20000} // few jobs are overdue
		p := &swapping{Policy: limited(t, []string{"gang", "srf", "fcfs"}[random.IntN(3)], bound), t: t, world: n,
			counts: &counts}
		if _, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{}); err != nil {
			t.Fatal(err)
		}
		found, none = found+p.found, none+p.none
	}
	t.Logf("%d searches found jobs to stop, %d found none: %+v", found, none, counts)
	if found < 200 || none < 2000 {
		t.Errorf("got %d searches that found jobs to stop and %d that did not, want at least 200 and 2000", found, none)
	}
	least := scheduler.Searches{Largest: 2000, Single: 2000, Few: 800, Larger: 140, Unfit: 2000, FewYield: 2000,
		Whole: 2000}
	if !counts.Reaches(least) {
		t.Errorf("got %+v, want at least %+v", counts, least)
	}
}

// The waits under easy are those of jobs that arrive one after the other.
func TestLimitRefusesJobsInAnotherOrder(t *testing.T) {
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 5, Load: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Jobs[0].Arrival = w.Jobs[4].Arrival + 1
	p := limited(t, "gang", scheduler.DefaultBound)
	if err := p.Reset(setup.Cluster, w, setup.Speeds); err == nil {
		t.Error("got no error for jobs that are not in the order of their arrival")
	}
}
