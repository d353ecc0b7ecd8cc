//go:build unix

package simulate_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

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

// counted is a policy that counts calls of Decide.
type counted struct {
	scheduler.Policy
	n       int
	timed   bool          // measure the time of each call
	longest time.Duration // longest elapsed time of a call, which includes time of other processes
}

// Incremental implements [scheduler.Incremental]. Without it, the simulator would update all jobs at each event.
func (p *counted) Incremental() bool {
	v, ok := p.Policy.(scheduler.Incremental)
	return ok && v.Incremental()
}

func (p *counted) Decide(s *scheduler.State) scheduler.Action {
	p.n++
	if !p.timed {
		return p.Policy.Decide(s)
	}
	begun := time.Now()
	a := p.Policy.Decide(s)
	p.longest = max(p.longest, time.Since(begun))
	return a
}

// BenchmarkPolicies simulates 1,000 jobs on the default cluster at load 0.8. A decision is a call of Decide, which
// starts or stops a job, or waits.
func BenchmarkPolicies(b *testing.B) {
	for _, name := range scheduler.Names() {
		b.Run(name, func(b *testing.B) { play(b, name, workload.Arrivals{Jobs: 1000, Load: 0.8, Seed: 1}) })
	}
}

// BenchmarkManyJobs simulates gang with the default bound on large clusters. Case "fixed" has the static bound. In case
// "together", all jobs arrive at the same time.
func BenchmarkManyJobs(b *testing.B) {
	for _, c := range []struct {
		name       string
		gpus, jobs int
		load       float64 // 0: all jobs arrive together
		memory     bool    // each job needs a different amount of memory
		bound      scheduler.Bound
		large      bool
	}{
		{"1000GPUs/together", 1000, 5000, 0, false, scheduler.DefaultBound, false},
		{"1000GPUs/together/memory", 1000, 5000, 0, true, scheduler.DefaultBound, false},
		{"1000GPUs/together/fixed", 1000, 5000, 0, false, scheduler.StaticBound, false},
		{"10000GPUs/load0.5", 10000, 100000, 0.5, false, scheduler.DefaultBound, true},
		{"10000GPUs/load0.8", 10000, 100000, 0.8, false, scheduler.DefaultBound, true},
		{"10000GPUs/load0.8/fixed", 10000, 100000, 0.8, false, scheduler.StaticBound, true},
		{"10000GPUs/load0.8/memory", 10000, 100000, 0.8, true, scheduler.DefaultBound, true},
		{"10000GPUs/load1.0", 10000, 100000, 1, false, scheduler.DefaultBound, true},
		{"10000GPUs/load1.3", 10000, 100000, 1.3, false, scheduler.DefaultBound, true},
		{"10000GPUs/load1.3/memory", 10000, 100000, 1.3, true, scheduler.DefaultBound, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			if c.large && !needtest.Large.On() {
				b.Skip("it simulates 100,000 jobs: set HETERO_LARGE=1")
			}
			many(b, "gang", c.bound, c.gpus, c.jobs, c.load, c.memory)
		})
	}
}

// BenchmarkQueue starts with a long queue on 1,000 GPUs. If the number of jobs doubles, the time of a decision must not
// double.
func BenchmarkQueue(b *testing.B) {
	for _, name := range []string{"fcfs", "easy", "rule", "srf", "srpt", "maxmin", "gang"} {
		for _, jobs := range []int{5000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", name, jobs), func(b *testing.B) {
				if jobs > 5000 && !needtest.Large.On() {
					b.Skip("it simulates a longer queue: set HETERO_LARGE=1")
				}
				many(b, name, scheduler.Bound{}, 1000, jobs, 0, false)
			})
			b.Run(fmt.Sprintf("%s/%d/memory", name, jobs), func(b *testing.B) {
				if !needtest.Large.On() {
					b.Skip("it simulates a queue of jobs with different demands: set HETERO_LARGE=1")
				}
				many(b, name, scheduler.Bound{}, 1000, jobs, 0, true)
			})
		}
	}
}

// many simulates a policy with a bound, or without one if the bound is the zero value.
func many(b *testing.B, policy string, bound scheduler.Bound, gpus, jobs int, load float64, memory bool) {
	setup, w := manyJobs(b, gpus, jobs, load, memory)
	actions, decisions, longest := 0, 0, time.Duration(0)
	before := cpuSeconds(b)
	for b.Loop() {
		inner, err := scheduler.New(policy, scheduler.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if bound != (scheduler.Bound{}) {
			inner = scheduler.Limit(inner, bound, scheduler.Options{})
		}
		p := &counted{Policy: inner, timed: true}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
		if err != nil {
			b.Fatal(err)
		}
		actions, decisions, longest = actions+r.Decisions, decisions+p.n, max(longest, p.longest)
	}
	seconds := cpuSeconds(b) - before
	b.ReportMetric(seconds/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(actions)/float64(b.N), "actions/op")
	b.ReportMetric(1e6*seconds/float64(decisions), "cpu-us/decision")
	b.ReportMetric(1e3*longest.Seconds(), "longest-ms")
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
