package dqn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// The rewards of an episode must sum to the completion times and the idle GPU times. Shaping must change the sum only
// by a constant that depends on the jobs.
func TestRewardsSumToCompletionAndIdleTimes(t *testing.T) {
	setup := workload.Default()
	for seed := range uint64(30) {
		for _, shaped := range []bool{false, true} {
			p := DefaultProblem()
			p.Shaped = shaped
			envs, err := NewEnvironments(1, p, Source{Setup: setup})
			if err != nil {
				t.Fatal(err)
			}
			e := envs[0].(*cluster)
			if err := e.Reset(seed); err != nil {
				t.Fatal(err)
			}
			random, o, sum := rand.New(rand.NewPCG(seed, 3)), NewObservation(e.Shape()), 0.0
			for done := false; !done; {
				e.Observe(o)
				out, err := e.Step(anyOf(o.Mask, random))
				if err != nil {
					t.Fatal(err)
				}
				sum, done = sum+out.Reward, out.Done
			}
			result := e.sim.Result("random")
			completion, idle := 0.0, 0.0
			for _, j := range result.Jobs {
				completion += j.Finish - j.Arrival
			}
			for g := range result.Available {
				idle += 3600 * (result.Available[g] - result.GPUHours[g])
			}
			want := completion + p.Lambda*idle
			if shaped {
				want -= e.constant
			}
			if got := -sum * scaleUnits * e.unit; math.Abs(got-want) > 1e-9*(completion+idle) {
				t.Errorf("seed %d, shaped %v: rewards sum to %v s, want %v", seed, shaped, got, want)
			}
		}
	}
}

// A gang that fits on one machine must start there, even if other machines have fewer free GPUs.
func TestGangStaysOnOneMachine(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 1 << 40, Network: 1e9},
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 8, CPUs: 64, Memory: 1 << 40, Network: 1e9})
	kind := 2 // number of the kind for image classification, which runs on up to 8 GPUs
	w := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{
		{Name: "gang", Kind: kind, Work: 1000, GPUs: 8, CPUs: 1, Memory: 1},
		{Name: "pair", Kind: kind, Work: 1000, GPUs: 2, CPUs: 1, Memory: 1}}}
	e := DefaultEncoding()
	e.Advice = ""
	n, o, sim := observed(t, e, setup, w)
	ways := n.shape.Ways * n.shape.Rows
	for _, want := range []struct {
		job, group, first int
		possible          bool
	}{{0, 0, 0, false}, {0, 1, 4, true}, {1, 0, 0, true}, {1, 1, 4, true}} {
		action := want.job*ways + want.group
		if o.Mask[action] != want.possible || o.Pairs[action*pairNumbers+pairSpread] != 0 {
			t.Errorf("%+v: got possible %v, spread %v", want, o.Mask[action], o.Pairs[action*pairNumbers+pairSpread])
		}
		if a := n.start(sim.State(), action); want.possible &&
			(len(a.GPUs) != w.Jobs[want.job].GPUs || a.GPUs[0] != want.first) {
			t.Errorf("%+v: got GPUs %v", want, a.GPUs)
		}
	}
}

// A gang that runs only over several machines must start on two machines, although each has enough GPUs. It must not
// start if only one machine has free GPUs.
func TestGangThatMustSpanMachines(t *testing.T) {
	setup := &workload.Setup{
		Cluster: workload.NewCluster([]scheduler.GPUType{{Name: "one", Memory: 1, Bandwidth: 1, Compute: 1}},
			workload.MachineSpec{Count: 2, Type: 0, GPUs: 2, CPUs: 8, Memory: 8, Network: 1e9}),
		Speeds: &workload.Table{Kinds: []workload.Rates{{Types: [][]workload.Rate{
			{{GPUs: 1, Packed: 1}, {GPUs: 2, Packed: 0, Spread: 2}}}}}},
	}
	if err := setup.Speeds.Build(1); err != nil {
		t.Fatal(err)
	}
	w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "gang"}}, Jobs: []scheduler.Job{
		{Name: "gang", GPUs: 2, Work: 10}, {Name: "single", GPUs: 1, Work: 30}, {Name: "other", GPUs: 1, Work: 30}}}
	e := DefaultEncoding()
	e.Advice = ""
	n, o, sim := observed(t, e, setup, w)
	for i := range 2 {
		if !o.Mask[i] || o.Pairs[i*pairNumbers+pairSpread] != 1 {
			t.Errorf("group %d: got possible %v, spread %v, want a start over both machines", i, o.Mask[i],
				o.Pairs[i*pairNumbers+pairSpread])
			continue
		}
		a := n.start(sim.State(), i)
		if _, why := sim.State().Fit(a.Job, a.GPUs); a.Job != 0 || why != scheduler.Fits {
			t.Errorf("group %d: got GPUs %v for job %d: %v", i, a.GPUs, a.Job, why)
		}
	}
	for job, gpu := range map[int]int{1: 0, 2: 1} { // machine 0 has no free GPU
		if err := sim.Apply(scheduler.Action{Verb: scheduler.Start, Job: job, GPUs: []int{gpu}}); err != nil {
			t.Fatal(err)
		}
	}
	n.observe(sim.State(), o)
	for i := range 2 {
		if o.Mask[i] {
			t.Errorf("group %d: got a start on one machine, want none", i)
		}
	}
}

// observed returns the observation of the first state of a cluster with jobs.
func observed(t *testing.T, e Encoding, setup *workload.Setup, w *scheduler.Workload) (*encoder, *Observation,
	*simulate.Sim) {
	t.Helper()
	sim, err := simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, o := encoded(t, e, 0, 0, setup, w, sim.State())
	return n, o, sim
}

// BenchmarkEnvironment measures steps with random actions: decision, simulation and observation.
func BenchmarkEnvironment(b *testing.B) {
	envs, err := NewEnvironments(1, DefaultProblem(), Source{Setup: workload.Default()})
	if err != nil {
		b.Fatal(err)
	}
	e, random := envs[0].(*cluster), rand.New(rand.NewPCG(1, 3))
	o := NewObservation(e.Shape())
	episodes := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		e.Observe(o)
		out, err := e.Step(anyOf(o.Mask, random))
		if err != nil {
			b.Fatal(err)
		}
		if out.Done {
			episodes++
			if err := e.Reset(episodes); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/float64(max(1, episodes)), "steps/episode")
}
