package simulate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// Policies with indices must make the decisions of their twins, which read the whole state: complete schedules must be
// bit-equal. A simulation that updates the remaining steps of all jobs at each event must give the same schedule.
func TestPoliciesEqualTheirTwins(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 4))
	worlds, jobs := 60, 160
	if needtest.Large.On() {
		worlds, jobs = 1000, 1000
	}
	for n := range worlds {
		w := newWorld(random)
		compareTwins(t, fmt.Sprintf("world %d", n), w.cluster, w.jobs, w.speeds, w.options)
	}
	// Many GPUs, some of them in machines with few CPU cores.
	setup := workload.Default()
	spec := func(typ, machines, gpus int, cpus float64) workload.MachineSpec {
		return workload.MachineSpec{Count: machines, Type: typ, GPUs: gpus, CPUs: cpus, Memory: 256 << 30,
			Network: 1.25e9}
	}
	setup.Cluster = workload.NewCluster(setup.Cluster.Types, spec(0, 6, 4, 32), spec(1, 4, 4, 14), spec(2, 5, 4, 20),
		spec(0, 2, 8, 64))
	for i, load := range []float64{0.4, 0.9, 1.6} {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: load, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		compareTwins(t, fmt.Sprintf("load %v", load), setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		for k := range w.Jobs { // many jobs start and end at the same times
			w.Jobs[k].Work, w.Jobs[k].Arrival = 3000, 200*math.Floor(w.Jobs[k].Arrival/200)
		}
		compareTwins(t, fmt.Sprintf("equal jobs at load %v", load), setup.Cluster, w, setup.Speeds,
			simulate.Options{Record: true})
	}
}

// This world has more machines than a word of a bitset has bits, and more different demands of jobs than the index of
// free GPUs keeps.
func TestPoliciesEqualTheirTwinsOnManyMachines(t *testing.T) {
	jobs := 150
	if needtest.Large.On() {
		jobs = 400
	}
	setup := workload.Default()
	spec := func(typ, machines int) workload.MachineSpec {
		return workload.MachineSpec{Count: machines, Type: typ, GPUs: 2, CPUs: 20, Memory: 96 << 30, Network: 1.25e9}
	}
	setup.Cluster = workload.NewCluster(setup.Cluster.Types, spec(workload.Volta, 36), spec(workload.Turing, 32))
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	demands := map[float64]bool{}
	for k := range w.Jobs {
		j := &w.Jobs[k]
		j.Arrival = 0
		if k%2 == 0 {
			j.Memory = float64(1+k) * (1 << 26)
		}
		demands[j.Memory] = true
	}
	if len(demands) <= limits.Demands {
		t.Fatalf("got %d different demands, want more than %d", len(demands), limits.Demands)
	}
	compareTwins(t, "many machines", setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
}

// With lower limits of the data structures, small worlds reach all limits. Lists have several blocks, which are split
// and merged. There are more demands and more groups of running jobs than the limits permit, and some readers are too
// late for the journal.
func TestPoliciesEqualTheirTwinsWithLowLimits(t *testing.T) {
	block, demands, groups, journal := limits.Block, limits.Demands, limits.Groups, limits.Journal
	t.Cleanup(func() { limits.Block, limits.Demands, limits.Groups, limits.Journal = block, demands, groups, journal })
	limits.Block, limits.Demands, limits.Groups = 8, 3, 2
	random := rand.New(rand.NewPCG(5, 13))
	worlds := 12
	if needtest.Large.On() {
		worlds = 300
	}
	for n := range worlds {
		limits.Journal = journal
		if n%3 == 0 {
			limits.Journal = 4
		}
		w := newWorld(random)
		if n%2 == 0 {
			distinct(w.jobs)
		}
		compareTwins(t, fmt.Sprintf("world %d", n), w.cluster, w.jobs, w.speeds, w.options)
	}
	limits.Journal = 64
	for i, load := range []float64{0, 0.9, 1.3} { // no jobs can share GPUs
		setup, w := manyJobs(t, 64, 150, load, i%2 == 0)
		compareTwins(t, fmt.Sprintf("a queue at load %v", load), setup.Cluster, w, setup.Speeds,
			simulate.Options{Record: true})
	}
}

// A job that may not span machines reserves GPUs in a plan for as long as it runs on one machine. A later job that
// would wait behind this job must start on a slower GPU.
func TestPoliciesEqualTheirTwinsIfJobsDoNotSpanMachines(t *testing.T) {
	setup := &workload.Setup{
		Cluster: workload.NewCluster([]scheduler.GPUType{{Name: "fast"}, {Name: "slow"}},
			workload.MachineSpec{Count: 1, Type: 0, GPUs: 2, Network: math.NaN()},
			workload.MachineSpec{Count: 1, Type: 1, GPUs: 1, Network: math.NaN()}),
		Speeds: &workload.Table{Kinds: []workload.Rates{{Types: [][]workload.Rate{
			{{GPUs: 1, Packed: 1, Spread: 1}, {GPUs: 2, Packed: 1}}, {{GPUs: 1, Packed: 0.8, Spread: 0.8}}}}}},
	}
	if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
		t.Fatal(err)
	}
	w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "one"}}, Jobs: []scheduler.Job{
		{Name: "runs", GPUs: 2, Work: 10},
		{Name: "waits", GPUs: 2, Work: 100, Arrival: 1},
		{Name: "starts", GPUs: 1, Work: 210, Arrival: 1},
	}}
	compareTwins(t, "jobs on one machine", setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
	p, err := scheduler.New("gang", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Jobs[2].Start; got != 1 {
		t.Errorf("got a start at %v s, want 1 s", got)
	}

	random := rand.New(rand.NewPCG(17, 2))
	worlds := 12
	if needtest.Large.On() {
		worlds = 200
	}
	for n := range worlds {
		setup, w := manyJobs(t, 16+8*random.IntN(4), 60, 0.7+random.Float64(), n%2 == 0)
		for k := range setup.Speeds.Kinds {
			for _, rates := range setup.Speeds.Kinds[k].Types {
				for i := range rates {
					if n := rates[i].GPUs; n > 1 && n <= 4 && random.IntN(2) == 0 {
						rates[i].Spread = 0
					}
				}
			}
		}
		if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
			t.Fatal(err)
		}
		compareTwins(t, fmt.Sprintf("world %d", n), setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
	}
}

// Gangs that run only over several machines find GPUs in plans, for reservations and among GPUs that are free.
func TestPoliciesEqualTheirTwinsIfJobsMustSpanMachines(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 29))
	worlds := 8
	if needtest.Large.On() {
		worlds = 200
	}
	for n := range worlds {
		setup, w := manyJobs(t, 16+8*random.IntN(4), 50, 0.7+random.Float64(), n%2 == 0)
		for k := range setup.Speeds.Kinds {
			for _, rates := range setup.Speeds.Kinds[k].Types {
				for i := range rates {
					if rates[i].GPUs > 1 && random.IntN(2) == 0 {
						rates[i].Packed = 0
					}
				}
			}
		}
		if err := setup.Speeds.Build(len(setup.Cluster.Types)); err != nil {
			t.Fatal(err)
		}
		for i := range w.Jobs {
			if scheduler.Holds(setup.Cluster, w, setup.Speeds, i) != nil {
				w.Jobs[i].GPUs = 1
			}
		}
		compareTwins(t, fmt.Sprintf("world %d", n), setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
	}
}

// Jobs of one class that need different amounts of memory run in one group. If the cluster has free GPUs, but little
// free memory, some of them can move to faster GPUs, and others cannot.
func TestPoliciesEqualTheirTwinsIfMemoryIsScarce(t *testing.T) {
	random := rand.New(rand.NewPCG(31, 6))
	worlds := 20
	if needtest.Large.On() {
		worlds = 200
	}
	for n := range worlds {
		setup, w := manyJobs(t, 16+8*random.IntN(4), 60, 0.4+0.4*random.Float64(), false)
		for i := range w.Jobs {
			w.Jobs[i].Kind %= 2
			w.Jobs[i].Memory = 250 * random.Float64() * (1 << 30)
			if scheduler.Holds(setup.Cluster, w, setup.Speeds, i) != nil {
				w.Jobs[i].GPUs = 1
			}
		}
		compareTwins(t, fmt.Sprintf("world %d", n), setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
	}
}

// distinct lets jobs need different amounts of memory, at most what they needed before.
func distinct(w *scheduler.Workload) {
	for i := range w.Jobs {
		w.Jobs[i].Memory *= 1 - float64(i)/float64(2*len(w.Jobs))
	}
}

// eager hides that a policy is incremental.
type eager struct{ scheduler.Policy }

// late hides the journal from a policy, so that it reads the whole state at each decision.
type late struct{ scheduler.Policy }

func (p late) Decide(s *state) action {
	whole := *s
	whole.Journal = nil
	return p.Policy.Decide(&whole)
}

// Without a journal, all policies must make the same decisions as with it.
func TestPoliciesDoNotNeedTheJournal(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 3))
	for n := range 60 {
		w := newWorld(random)
		for _, name := range append(scheduler.Names(), "limited") {
			p, err := scheduler.New(strings.Replace(name, "limited", "gang", 1), scheduler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if name == "limited" {
				p = scheduler.Limit(p, scheduler.Bound{Factor: 0.2}, scheduler.Options{})
			}
			want := schedule(t, p, w.cluster, w.jobs, w.speeds, w.options)
			if got := schedule(t, late{p}, w.cluster, w.jobs, w.speeds, w.options); got != want {
				t.Fatalf("world %d: policy %s decides differently without the journal", n, name)
			}
		}
	}
}

func compareTwins(t *testing.T, name string, c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds,
	o simulate.Options) {
	t.Helper()
	gang := func(short bool) scheduler.Policy {
		p, err := scheduler.New("gang", scheduler.Options{ShortPlan: short})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	named := func(name string) scheduler.Policy {
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tight := scheduler.Bound{Factor: 0.2}
	for _, pair := range []struct {
		name      string
		got, want scheduler.Policy
	}{
		{"gang", gang(false), &twinGang{}},
		{"gang, short", gang(true), &twinGang{short: true}},
		{"gang, bounded", scheduler.Limit(gang(false), scheduler.StaticBound, scheduler.Options{}),
			&twinBounded{Policy: &twinGang{}, bound: scheduler.StaticBound}},
		{"gang, tightly bounded", scheduler.Limit(gang(false), tight, scheduler.Options{}),
			&twinBounded{Policy: &twinGang{}, bound: tight}},
		{"easy", named("easy"), &twinEasy{}},
		{"srf", named("srf"), &twinSRF{}},
		{"rule", named("rule"), &twinRule{}},
		{"srpt", named("srpt"), &twinSRPT{}},
		{"las", named("las"), &twinLAS{}},
	} {
		want := schedule(t, pair.want, c, w, speeds, o)
		if got := schedule(t, pair.got, c, w, speeds, o); got != want {
			t.Fatalf("%s: policy %s differs from its twin", name, pair.name)
		}
		if got := schedule(t, eager{pair.got}, c, w, speeds, o); got != want {
			t.Fatalf("%s: policy %s differs if the simulator updates all jobs", name, pair.name)
		}
	}
}

// schedule returns all starts and ends of a run.
func schedule(t *testing.T, p scheduler.Policy, c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds,
	o simulate.Options) string {
	t.Helper()
	r, err := simulate.Run(p, c, w, speeds, o)
	if err != nil {
		t.Fatalf("policy %s: %v", p.Name(), err)
	}
	return fmt.Sprint(r.Segments, r.Jobs, r.End, r.Decisions, r.Events)
}
