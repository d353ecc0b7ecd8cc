package simulate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
)

// markov makes jobs with exponentially distributed times between arrivals, and exponentially distributed work. The
// speed is 1 step per second.
func markov(n int, rate float64, seed uint64) *scheduler.Workload {
	random := rand.New(rand.NewPCG(seed, 3))
	w := jobs()
	w.Kinds[0] = scheduler.Kind{Name: "exponential", GPUMemory: 1}
	now := 0.0
	for range n {
		now += random.ExpFloat64() / rate
		w.Jobs = append(w.Jobs, scheduler.Job{Arrival: now, Work: random.ExpFloat64(), GPUs: 1})
	}
	return w
}

// sample returns the mean of a figure of jobs over several runs, without the first tenth of the jobs. It also returns
// half the width of the 99 % interval of the mean.
func sample(t *testing.T, p scheduler.Policy, gpus int, rate float64, s scheduler.Speeds,
	figure func(scheduler.Completion) float64) (mean, half float64) {
	t.Helper()
	const runs, n = 40, 10000
	values := make([]float64, runs)
	for seed := range values {
		r, err := simulate.Run(p, boxes(1, gpus), markov(n, rate, uint64(seed+1000*gpus)+uint64(1e6*rate)), s,
			simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Jobs[n/10:] {
			values[seed] += figure(c) / (n - n/10)
		}
		mean += values[seed] / runs
	}
	square := 0.0
	for _, v := range values {
		square += (v - mean) * (v - mean) / (runs - 1)
	}
	const student = 2.708 // quantile for 39 degrees of freedom and a two-sided 99 % interval
	return mean, student * math.Sqrt(square/runs)
}

// erlangC returns the mean waiting time of the queue M/M/c with service rate 1.
func erlangC(c int, rate float64) float64 {
	sum, term := 0.0, 1.0
	for k := range c {
		sum += term
		term *= rate / float64(k+1)
	}
	waits := term * float64(c) / (float64(c) - rate)
	return waits / (sum + waits) / (float64(c) - rate)
}

func TestWaitingTimesFollowErlangC(t *testing.T) {
	p, _ := scheduler.New("fcfs", scheduler.Options{})
	for _, c := range []struct {
		gpus int
		load float64
	}{{1, 0.5}, {1, 0.8}, {4, 0.7}, {8, 0.9}, {16, 0.8}} {
		rate := c.load * float64(c.gpus)
		got, half := sample(t, p, c.gpus, rate, plain{}, func(j scheduler.Completion) float64 {
			return j.Start - j.Arrival
		})
		want := erlangC(c.gpus, rate)
		t.Logf("M/M/%d at load %v: mean wait %.5f s +- %.5f, theory %.5f", c.gpus, c.load, got, half, want)
		if math.Abs(got-want) > half {
			t.Errorf("M/M/%d at load %v: got a mean wait of %v s +- %v, want %v", c.gpus, c.load, got, half, want)
		}
	}
}

// halves contains speeds at which each of two jobs on a GPU has half of its speed.
type halves struct{ plain }

func (halves) Shared(_, _, _, n int) (float64, bool) { return float64(n) / 2, true }

// both starts the first job of the queue on GPU 0, even if another job runs there.
type both struct{ gpu [1]int }

func (*both) Name() string { return "both" }
func (*both) Reset(*scheduler.Cluster, *scheduler.Workload, scheduler.Speeds) error {
	return nil
}
func (p *both) Decide(s *scheduler.State) scheduler.Action {
	if len(s.Queue) > 0 && len(s.OnGPU[0]) < scheduler.MaxSharing {
		return scheduler.Action{Verb: scheduler.Start, Job: s.Queue[0], GPUs: p.gpu[:]}
	}
	return scheduler.Action{}
}

// If two jobs share a GPU at half speed each, the total speed of the GPU stays the same. With exponentially distributed
// work, the number of jobs is therefore that of M/M/1. By Little's law, the mean completion time is also that of M/M/1:
// 1 / (1 - load).
func TestProcessorSharingFollowsTheory(t *testing.T) {
	for _, load := range []float64{0.5, 0.8} {
		got, half := sample(t, &both{}, 1, load, halves{}, func(j scheduler.Completion) float64 {
			return j.Finish - j.Arrival
		})
		want := 1 / (1 - load)
		t.Logf("sharing at load %v: mean completion %.5f s +- %.5f, theory %.5f", load, got, half, want)
		if math.Abs(got-want) > half {
			t.Errorf("load %v: got a mean completion time of %v s +- %v, want %v", load, got, half, want)
		}
	}
}
