package simulate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// runs returns the number of random runs of each policy.
func runs() int {
	if needtest.Large.On() {
		return 2000
	}
	return 800
}

// world is a random cluster with random jobs.
type world struct {
	cluster *scheduler.Cluster
	jobs    *scheduler.Workload
	speeds  *workload.Table
	options simulate.Options
}

func newWorld(random *rand.Rand) world {
	setup := workload.Default()
	// The cluster gets other machines with the same types. The first machine can hold all jobs of one GPU.
	specs := []workload.MachineSpec{
		{Count: 1, Type: workload.Volta, GPUs: 4, CPUs: 32, Memory: 256 << 30, Network: 1e9}}
	for range random.IntN(4) {
		specs = append(specs, workload.MachineSpec{Count: 1, Type: random.IntN(3), GPUs: 1 + random.IntN(4),
			CPUs: float64(4 + random.IntN(30)), Memory: float64(16+random.IntN(200)) * (1 << 30),
			Network: 1e8 * float64(1+random.IntN(10))})
	}
	w := world{cluster: workload.NewCluster(setup.Cluster.Types, specs...), speeds: setup.Speeds}
	if random.IntN(4) == 0 {
		w.cluster.Machines[0].Network = math.NaN()
	}
	setup.Cluster = w.cluster
	jobs, err := workload.Generate(setup, workload.Arrivals{Jobs: 1 + random.IntN(30), Load: 0.2 + 2*random.Float64(),
		Burst: 1 + 3*random.Float64(), Seed: random.Uint64()})
	if err != nil {
		panic(err)
	}
	for i := range jobs.Jobs {
		if scheduler.Holds(w.cluster, jobs, w.speeds, i) != nil {
			jobs.Jobs[i].GPUs = 1
		}
	}
	w.jobs = jobs
	if random.IntN(2) == 0 {
		w.options.Checkpoint = 10 + 300*random.Float64()
	}
	if random.IntN(2) == 0 { // failures with repairs: all GPUs are available in the end
		at := 0.0
		for range random.IntN(10) {
			at += 1000 * random.ExpFloat64()
			w.options.Changes = append(w.options.Changes,
				simulate.Change{At: at, GPU: random.IntN(len(w.cluster.GPUs))})
		}
		for g := range w.cluster.GPUs {
			w.options.Changes = append(w.options.Changes, simulate.Change{At: at + 500, GPU: g, Up: true})
		}
	}
	w.options.Record = true
	return w
}

// wild starts jobs on any GPUs, including sets of several types and GPUs of other jobs. It also stops jobs.
type wild struct {
	random *rand.Rand
	seed   uint64
	stops  int
}

func (p *wild) Name() string { return "wild" }

func (p *wild) Reset(*scheduler.Cluster, *scheduler.Workload, scheduler.Speeds) error {
	p.random, p.stops = rand.New(rand.NewPCG(p.seed, 7)), 0
	return nil
}

func (p *wild) Decide(s *scheduler.State) scheduler.Action {
	if p.stops < 200 && len(s.Running) > 0 && p.random.IntN(6) == 0 {
		if r := s.Running[p.random.IntN(len(s.Running))]; math.IsInf(r.Leaves, 1) {
			p.stops++
			return scheduler.Action{Verb: scheduler.Stop, Job: r.Job}
		}
	}
	tries := 4 * len(s.Queue)
	if len(s.Running) == 0 { // no event would follow a wait, so the policy must start a job
		tries *= 1000
	}
	for range tries {
		job := s.Queue[p.random.IntN(len(s.Queue))]
		var gpus []int
		if len(s.Running) > 0 && p.random.IntN(3) == 0 {
			gpus = slices.Clone(s.Running[p.random.IntN(len(s.Running))].GPUs)
		} else {
			gpus = p.random.Perm(len(s.Up))[:min(len(s.Up), s.Workload.Jobs[job].GPUs)]
			slices.Sort(gpus)
		}
		if _, why := s.Fit(job, gpus); why == scheduler.Fits {
			return scheduler.Action{Verb: scheduler.Start, Job: job, GPUs: gpus}
		}
	}
	return scheduler.Action{}
}

// watched checks all invariants of a state at each decision of its policy, and integrates the work of all jobs.
type watched struct {
	scheduler.Policy
	t      *testing.T
	last   float64
	speed  map[int]float64 // by job: steps/s since the last decision
	done   []float64       // by job: steps computed
	before []float64       // by job: remaining steps at the last decision
	lost   []float64       // by job: steps lost in failures
	slowed int             // number of speeds that the network limits, over all decisions
}

func (p *watched) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.last, p.speed = w.Jobs[0].Arrival, map[int]float64{}
	p.done, p.lost, p.before = make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		p.before[i] = w.Jobs[i].Work
	}
	return p.Policy.Reset(c, w, s)
}

func (p *watched) Decide(s *scheduler.State) scheduler.Action {
	p.check(s)
	return p.Policy.Decide(s)
}

func (p *watched) check(s *scheduler.State) {
	t := p.t
	if s.Now < p.last {
		t.Fatalf("time went from %v s back to %v s", p.last, s.Now)
	}
	for job, left := range s.Remaining {
		did := p.speed[job] * (s.Now - p.last)
		p.done[job] += did
		if back := left - (p.before[job] - did); back > 1e-9*s.Workload.Jobs[job].Work {
			p.lost[job] += back
		}
		p.before[job] = left
	}
	clear(p.speed)
	p.last = s.Now
	places := make([]int, s.Arrived) // by job: occurrences in the queue or among running jobs
	for i, job := range s.Queue {
		if i > 0 && s.Queue[i-1] >= job {
			t.Fatalf("queue %v is not in the order of arrival", s.Queue)
		}
		places[job]++
	}
	on := make([][]int, len(s.Up))
	for _, r := range s.Running {
		places[r.Job]++
		p.speed[r.Job] = r.Speed
		if len(r.GPUs) != s.Workload.Jobs[r.Job].GPUs {
			t.Fatalf("job %d has GPUs %v, want %d", r.Job, r.GPUs, s.Workload.Jobs[r.Job].GPUs)
		}
		for _, g := range r.GPUs {
			on[g] = append(on[g], r.Job)
		}
	}
	p.network(s)
	waiting := 0
	for job, n := range places {
		if n > 1 {
			t.Fatalf("job %d is in %d places", job, n)
		}
		waiting += n
	}
	if waiting+s.Finished != s.Arrived {
		t.Fatalf("%d jobs wait or run and %d have finished, want %d", waiting, s.Finished, s.Arrived)
	}
	cpus, memory := make([]float64, len(s.FreeCPUs)), make([]float64, len(s.FreeMem))
	for g, jobs := range on {
		slices.Sort(jobs)
		if got := slices.Sorted(slices.Values(s.OnGPU[g])); !slices.Equal(got, jobs) ||
			len(jobs) > scheduler.MaxSharing || len(jobs) > 0 && !s.Up[g] {
			t.Fatalf("GPU %d (available: %v) has jobs %v, want %v", g, s.Up[g], got, jobs)
		}
		need := 0.0
		for _, job := range jobs {
			cpus[s.Cluster.GPUs[g].Machine] += s.Workload.Jobs[job].CPUs
			memory[s.Cluster.GPUs[g].Machine] += s.Workload.Jobs[job].Memory
			need += s.Workload.Kinds[s.Workload.Jobs[job].Kind].GPUMemory
		}
		if need > s.Cluster.Types[s.Cluster.GPUs[g].Type].Memory {
			t.Fatalf("jobs of GPU %d need %v bytes of its memory", g, need)
		}
	}
	for m, machine := range s.Cluster.Machines {
		if s.FreeCPUs[m] < 0 || s.FreeMem[m] < 0 || math.Abs(s.FreeCPUs[m]+cpus[m]-machine.CPUs) > 1e-6 ||
			math.Abs(s.FreeMem[m]+memory[m]-machine.Memory) > 1 {
			t.Fatalf("machine %d: free are %v cores and %v bytes, jobs have %v and %v of %v and %v", m, s.FreeCPUs[m],
				s.FreeMem[m], cpus[m], memory[m], machine.CPUs, machine.Memory)
		}
	}
}

// network checks the speeds of all computing jobs. Jobs that span machines share the links of these machines.
func (p *watched) network(s *scheduler.State) {
	computes := func(r *scheduler.Running) bool { return r.Speed > 0 && math.IsInf(r.Leaves, 1) }
	load := make([]float64, len(s.Cluster.Machines))
	for i := range s.Running {
		if r := &s.Running[i]; computes(r) && s.Cluster.Spread(r.GPUs) {
			for _, g := range r.GPUs {
				load[s.Cluster.GPUs[g].Machine] += s.Workload.Jobs[r.Job].Network
			}
		}
	}
	for i := range s.Running {
		r := &s.Running[i]
		if !computes(r) {
			continue
		}
		fraction := 1.0
		for _, g := range r.GPUs {
			m := s.Cluster.GPUs[g].Machine
			if limit := s.Cluster.Machines[m].Network; load[m] > limit && s.Workload.Jobs[r.Job].Network > 0 &&
				s.Cluster.Spread(r.GPUs) {
				fraction = min(fraction, limit/load[m])
			}
		}
		if want := s.Rate(r.Job, r.GPUs, r.Partner) * fraction; r.Speed != want {
			p.t.Fatalf("job %d: got a speed of %v steps/s, want %v", r.Job, r.Speed, want)
		}
		if fraction < 1 {
			p.slowed++
		}
	}
}

// segments checks that the jobs on a GPU never exceed the number that may share it, and that each job ends once.
func segments(t *testing.T, r *scheduler.Result) {
	t.Helper()
	type edge struct {
		at    float64
		delta int
	}
	edges := make([][]edge, len(r.GPUHours))
	ended := make([]int, len(r.Jobs))
	for _, s := range r.Segments {
		if s.Ended == scheduler.Finished {
			ended[s.Job]++
			if r.Jobs[s.Job].Finish != s.To {
				t.Fatalf("job %d finished at %v s, its segment at %v s", s.Job, r.Jobs[s.Job].Finish, s.To)
			}
		}
		for _, g := range s.GPUs {
			edges[g] = append(edges[g], edge{s.From, 1}, edge{s.To, -1})
		}
	}
	for job, n := range ended {
		if n != 1 {
			t.Fatalf("job %d finished %d times", job, n)
		}
	}
	for g, list := range edges {
		slices.SortFunc(list, func(a, b edge) int {
			if a.at != b.at {
				return int(math.Copysign(1, a.at-b.at))
			}
			return a.delta - b.delta
		})
		jobs, busy := 0, 0.0
		for i, e := range list {
			if jobs > 0 {
				busy += e.at - list[i-1].at
			}
			if jobs += e.delta; jobs > scheduler.MaxSharing {
				t.Fatalf("GPU %d has %d jobs at %v s", g, jobs, e.at)
			}
		}
		if math.Abs(busy/3600-r.GPUHours[g]) > 1e-9*(1+busy) {
			t.Fatalf("GPU %d: got %v busy hours, want %v", g, r.GPUHours[g], busy/3600)
		}
		if r.GPUHours[g] > r.Available[g]+1e-9 {
			t.Fatalf("GPU %d: busy for %v of %v hours", g, r.GPUHours[g], r.Available[g])
		}
	}
}

func TestProperties(t *testing.T) {
	for _, name := range append(scheduler.Names(), "wild", "limited") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(11, 13))
			slowed := 0
			for n := range runs() {
				w := newWorld(random)
				var p scheduler.Policy = &wild{seed: random.Uint64()}
				if name != "wild" {
					named, err := strings.Replace(name, "limited", "gang", 1), error(nil)
					if p, err = scheduler.New(named, scheduler.Options{Explain: n%2 == 0}); err != nil {
						t.Fatal(err)
					}
				}
				if name == "limited" { // this short bound makes many jobs overdue
					p = scheduler.Limit(p, scheduler.Bound{Factor: 0.2}, scheduler.Options{Explain: n%2 == 0})
				}
				look := &watched{Policy: p, t: t}
				r, err := simulate.Run(look, w.cluster, w.jobs, w.speeds, w.options)
				if err != nil {
					t.Fatalf("run %d: %v", n, err)
				}
				segments(t, r)
				slowed += look.slowed
				for job, c := range r.Jobs {
					work := w.jobs.Jobs[job].Work
					// The last decision is before the end of the last job, so watched does not see it.
					if c.Finish == r.End {
						continue
					}
					if got := look.done[job] - look.lost[job]; math.Abs(got-work) > 1e-7*(work+look.lost[job]) {
						t.Fatalf("run %d: job %d computed %v steps and lost %v, want %v more", n, job, look.done[job],
							look.lost[job], work)
					}
					if !(c.Arrival <= c.Start && c.Start < c.Finish) {
						t.Fatalf("run %d: job %d: got %+v", n, job, c)
					}
				}
				if n%10 == 0 { // repeat the run with the same policy and the memory of the same simulator
					again, err := simulate.Run(p, w.cluster, w.jobs, w.speeds, w.options)
					if err != nil || text(again) != text(r) {
						t.Fatalf("run %d: a second run differs: %v", n, err)
					}
				}
			}
			if t.Logf("the network limited a speed at %d decisions", slowed); slowed < 100 {
				t.Errorf("the network limited a speed at %d decisions, want at least 100", slowed)
			}
		})
	}
}

// text prints a result with the contents of its window. NaN equals NaN in the text.
func text(r *scheduler.Result) string {
	flat := *r
	flat.Window = nil
	if r.Window == nil {
		return fmt.Sprint(flat)
	}
	return fmt.Sprint(flat, *r.Window)
}

// A simulation after Reset must give the same result as a new one.
func TestResetEqualsFresh(t *testing.T) {
	setup := workload.Default()
	var sim *simulate.Sim
	for seed := range uint64(20) {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 40, Load: 1, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		p := &wild{seed: seed}
		fresh, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if sim == nil {
			sim, err = simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		} else {
			err = sim.Reset(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 { // abandon this run in the middle
			sim.Next(math.Inf(1))
			if gpus, _, ok := sim.State().Place(sim.State().Queue[0], 0, nil); ok {
				start(t, sim, sim.State().Queue[0], gpus...)
			}
			if err := sim.Reset(w); err != nil {
				t.Fatal(err)
			}
		}
		again, err := sim.Run(p)
		if err != nil || text(again) != text(fresh) {
			t.Fatalf("seed %d: got %v, want the result of a new simulation", seed, err)
		}
	}
}
