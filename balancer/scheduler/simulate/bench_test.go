//go:build unix

package simulate_test

import (
	"math"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// cpuSeconds returns the CPU time of this process. Unlike elapsed time, it does not depend on other processes.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// counted counts calls of Decide.
type counted struct {
	scheduler.Policy
	n int
}

// Incremental implements [scheduler.Incremental]: otherwise the simulator would update all jobs at each event.
func (p *counted) Incremental() bool {
	v, ok := p.Policy.(scheduler.Incremental)
	return ok && v.Incremental()
}

func (p *counted) Decide(s *scheduler.State) scheduler.Action {
	p.n++
	return p.Policy.Decide(s)
}

// BenchmarkPolicies simulates 1,000 jobs on the default cluster at load 0.8. A decision is a call of Decide: a start, a
// stop or a wait.
func BenchmarkPolicies(b *testing.B) {
	for _, name := range scheduler.Names() {
		b.Run(name, func(b *testing.B) { play(b, name, workload.Arrivals{Jobs: 1000, Load: 0.8, Seed: 1}) })
	}
}

// BenchmarkManyJobs simulates gang with the default bound on large clusters. Jobs are of the default kinds and cannot
// share GPUs. In one case all jobs arrive together.
func BenchmarkManyJobs(b *testing.B) {
	for _, c := range []struct {
		name       string
		gpus, jobs int
		load       float64 // 0: all jobs arrive together
		large      bool
	}{
		{"1000GPUs/together", 1000, 5000, 0, false},
		{"10000GPUs/load0.5", 10000, 100000, 0.5, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			if c.large && !needtest.Large.On() {
				b.Skip("it simulates 100,000 jobs: set HETERO_LARGE=1")
			}
			setup := workload.Default()
			setup.Cluster = workload.NewCluster(setup.Cluster.Types,
				workload.MachineSpec{Count: c.gpus / 8, Type: workload.Volta, GPUs: 4, CPUs: 64, Memory: 512 << 30,
					Network: math.NaN()},
				workload.MachineSpec{Count: c.gpus / 8, Type: workload.Turing, GPUs: 4, CPUs: 64, Memory: 512 << 30,
					Network: math.NaN()})
			w, err := workload.Generate(setup, workload.Arrivals{Jobs: c.jobs, Load: max(c.load, 0.5), Seed: 1})
			if err != nil {
				b.Fatal(err)
			}
			speeds := *setup.Speeds
			speeds.Pairs = nil
			if err := speeds.Build(len(setup.Cluster.Types)); err != nil {
				b.Fatal(err)
			}
			for i := range w.Jobs {
				if c.load == 0 {
					w.Jobs[i].Arrival = 0
				}
			}
			actions := 0
			before := cpuSeconds(b)
			for b.Loop() {
				p, err := scheduler.New("gang", scheduler.Options{})
				if err != nil {
					b.Fatal(err)
				}
				p = scheduler.Limit(p, scheduler.DefaultBound, false)
				r, err := simulate.Run(p, setup.Cluster, w, &speeds, simulate.Options{})
				if err != nil {
					b.Fatal(err)
				}
				actions += r.Decisions
			}
			b.ReportMetric((cpuSeconds(b)-before)/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(actions)/float64(b.N), "actions/op")
		})
	}
}

// BenchmarkEpisodes simulates episodes of 64 jobs, as a learner does. Each episode has another seed. The time includes
// the generation of the jobs.
func BenchmarkEpisodes(b *testing.B) { play(b, "fcfs", workload.Arrivals{Jobs: 64, Load: 0.8}) }

func play(b *testing.B, name string, a workload.Arrivals) {
	setup := workload.Default()
	var w scheduler.Workload
	if err := workload.GenerateInto(&w, setup, a); err != nil {
		b.Fatal(err)
	}
	s, err := simulate.New(setup.Cluster, &w, setup.Speeds, simulate.Options{})
	if err != nil {
		b.Fatal(err)
	}
	policy, err := scheduler.New(name, scheduler.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := &counted{Policy: policy}
	starts, episodes := 0, 0
	before := cpuSeconds(b)
	b.ReportAllocs()
	for b.Loop() {
		if a.Seed == 0 {
			next := a
			next.Seed = uint64(episodes)
			if err := workload.GenerateInto(&w, setup, next); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Reset(&w); err != nil {
			b.Fatal(err)
		}
		r, err := s.Run(p)
		if err != nil {
			b.Fatal(err)
		}
		starts += r.Decisions
		episodes++
	}
	seconds := cpuSeconds(b) - before
	b.ReportMetric(float64(p.n)/seconds, "decisions/cpu-s")
	b.ReportMetric(float64(starts)/seconds, "actions/cpu-s")
	b.ReportMetric(float64(episodes)/seconds, "episodes/cpu-s")
}
