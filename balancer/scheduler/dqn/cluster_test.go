package dqn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// The rewards of an episode sum to the completion times and the idle GPU times, and shaping changes the sum by a
// constant of the jobs, whatever the actions are.
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
