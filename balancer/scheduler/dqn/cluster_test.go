package dqn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// The rewards of an episode sum to the completion times and the idle GPU times, and shaping changes the sum by a
// constant of the jobs for any actions.
func TestRewardsSumToCompletionAndIdleTimes(t *testing.T) {
	setup := workload.Default()
	for seed := range uint64(30) {
		for _, shaped := range []bool{false, true} {
			p := DefaultProblem()
			p.Shaped = shaped
			envs, err := NewEnvironments(1, p, setup)
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
			if got := -sum * scaleUnits * p.Encoding.Unit; math.Abs(got-want) > 1e-9*(completion+idle) {
				t.Errorf("seed %d, shaped %v: rewards sum to %v s, want %v", seed, shaped, got, want)
			}
		}
	}
}

// A gang that fits on one machine starts there, also if the GPUs of the machine are several groups, and its numbers are
// those of one machine.
func TestGangStaysOnOneMachine(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 1 << 40, Network: 1e9},
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 8, CPUs: 64, Memory: 1 << 40, Network: 1e9})
	kind := 2 // image classification, which runs on up to 8 GPUs
	w := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{{Name: "gang", Kind: kind, Work: 1000, GPUs: 8, CPUs: 1, Memory: 1}}}
	e := DefaultEncoding()
	e.Advice = ""
	n, err := newEncoder(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.reset(setup.Cluster, w, setup.Speeds); err != nil {
		t.Fatal(err)
	}
	sim, err := simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := NewObservation(n.shape)
	n.observe(sim.State(), o)
	for group, want := range []struct {
		spread float32
		first  int
	}{{1, 0}, {0, 4}, {0, 4}} { // the small machine, and the two groups of the large one
		if got := o.Pairs[group*pairNumbers+pairSpread]; got != want.spread || !o.Mask[group] {
			t.Errorf("group %d: got spread %v and possible %v, want %v and true", group, got, o.Mask[group], want.spread)
		}
		a := n.start(sim.State(), group)
		if len(a.GPUs) != 8 || a.GPUs[0] != want.first {
			t.Errorf("group %d: got GPUs %v, want 8 from %d", group, a.GPUs, want.first)
		}
	}
}

// BenchmarkEnvironment measures steps with random actions: decision, simulator and observation.
func BenchmarkEnvironment(b *testing.B) {
	envs, err := NewEnvironments(1, DefaultProblem(), workload.Default())
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
