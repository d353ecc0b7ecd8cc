package simulate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Under gang alone, some jobs of 8 GPUs wait for days if there are many jobs. With the default bound, the longest wait
// for each number of GPUs must be at most twice the longest wait under EASY backfilling. The throughput in jobs per
// hour must be the same.
func TestNoJobStarves(t *testing.T) {
	setup := workload.Default()
	for seed := range uint64(3) {
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 4000, Load: 0.8, Seed: 500 + seed})
		if err != nil {
			t.Fatal(err)
		}
		figures := map[string]compare.Figures{}
		for _, name := range []string{"easy", "gang", "limited"} {
			named := name
			if name == "limited" {
				named = "gang"
			}
			p, err := scheduler.New(named, scheduler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if name == "limited" {
				p = scheduler.Limit(p, scheduler.DefaultBound, scheduler.Options{})
			}
			r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if figures[name], err = compare.FiguresOf(w, r); err != nil {
				t.Fatal(err)
			}
		}
		easy, alone, limited := figures["easy"], figures["gang"], figures["limited"]
		for i, g := range limited.Gangs {
			t.Logf("seed %d, %d GPUs: longest wait %.0f s, gang alone %.0f s, easy %.0f s", seed, g.GPUs, g.Worst,
				alone.Gangs[i].Worst, easy.Gangs[i].Worst)
			if most := 2 * easy.Gangs[i].Worst; g.Worst > most {
				t.Errorf(
					"seed %d, jobs of %d GPUs: got a longest wait of %.0f s, want at most %.0f s, twice that of easy",
					seed, g.GPUs, g.Worst, most)
			}
		}
		if last := len(easy.Gangs) - 1; alone.Gangs[last].Worst < 4*easy.Gangs[last].Worst {
			t.Errorf("seed %d: got a longest wait of %.0f s with gang alone, so this case does not show what the bound prevents",
				seed, alone.Gangs[last].Worst)
		}
		if least := 0.98 * easy.Throughput; limited.Throughput < least {
			t.Errorf("seed %d: got %.2f jobs/h, want at least %.2f", seed, limited.Throughput, least)
		}
		if !(limited.Completion < 0.8*easy.Completion) {
			t.Errorf("seed %d: got a mean completion time of %.0f s, want less than 0.8 times the %.0f s of easy", seed,
				limited.Completion, easy.Completion)
		}
	}
}

// promised is a policy with a bound that checks the promise of [TestNoStartDelaysAnOverdueJob]. When a job becomes the
// first overdue job, promised computes the latest time of its start, without the data structures of the policy.
type promised struct {
	scheduler.Policy
	twin  twinBounded
	since map[int]float64 // by job: time in s at which it became the first overdue job
	start map[int]float64 // by job: latest time in s of its next start
	first int
}

func (p *promised) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.since, p.start, p.first = map[int]float64{}, map[int]float64{}, -1
	p.twin.Policy = &twinSRF{}
	if err := p.twin.Reset(c, w, s); err != nil {
		return err
	}
	return p.Policy.Reset(c, w, s)
}

func (p *promised) Decide(s *scheduler.State) scheduler.Action {
	first := -1
	for _, q := range s.Queue {
		if s.Now >= p.twin.due[q] && (first < 0 || p.twin.due[q] < p.twin.due[first]) {
			first = q
		}
	}
	if first >= 0 && first != p.first {
		p.twin.count(s)
		at := s.Now
		if _, _, fits := p.twin.fastest(s, first); !fits {
			at += p.twin.reserve(s, first)
		}
		if _, known := p.start[first]; !known {
			p.since[first], p.start[first] = s.Now, at
		}
	}
	p.first = first
	return p.Policy.Decide(s)
}

// nextStart returns the time of a job's first start at or after from. The job may have started and stopped before.
func nextStart(r *scheduler.Result, job int, from float64) float64 {
	at := math.Inf(1)
	for i := range r.Segments {
		if v := &r.Segments[i]; v.Job == job && v.From >= from {
			at = min(at, v.From)
		}
	}
	return at
}

// The first overdue job is the one that became overdue before all others. It must start at the latest when the running
// jobs on the GPUs that it needs are predicted to end. The prediction is that of the moment at which it became the
// first one. No start of another job may delay it.
// The prediction assumes that the network slows no job down and that no GPU fails. Jobs may share GPUs. The random
// clusters exclude one case: the overdue job waits for CPU cores of a running job on other GPUs, which a third job then
// shares.
//
// So a job waits at most for its bound, then for the overdue jobs before it, and then for running jobs. No policy that
// lets running jobs finish can promise less, because these jobs may need all GPUs.
func TestNoStartDelaysAnOverdueJob(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 17))
	heads, waits := 0, 0
	for n := range 300 {
		w := newWorld(random)
		w.options.Changes = nil
		for m := range w.cluster.Machines {
			w.cluster.Machines[m].Network = math.NaN()
		}
		inner, err := scheduler.New([]string{"gang", "srf", "allox"}[n%3], scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		bound := scheduler.Bound{Factor: 3 * random.Float64(), Seconds: 600 * random.Float64()}
		p := &promised{Policy: scheduler.Limit(inner, bound, scheduler.Options{}), twin: twinBounded{bound: bound}}
		r, err := simulate.Run(p, w.cluster, w.jobs, w.speeds, w.options)
		if err != nil {
			t.Fatal(err)
		}
		// promised is not incremental, but the policy alone is. Both must give the same schedule.
		alone := schedule(t, p.Policy, w.cluster, w.jobs, w.speeds, w.options)
		if got := fmt.Sprint(r.Segments, r.Jobs, r.End, r.Decisions, r.Events); got != alone {
			t.Errorf("world %d, policy %s: the schedule differs if the simulator updates all jobs", n, p.Name())
		}
		for job, at := range p.start {
			heads++
			if at > p.twin.due[job] {
				waits++
			}
			if got := nextStart(r, job, p.since[job]); got > at*(1+1e-9) {
				t.Errorf("world %d, policy %s: job %d starts at %.6g s, want at most %.6g s; its bound ended at %.6g s",
					n, p.Name(), job, got, at, p.twin.due[job])
			}
		}
	}
	if t.Logf("%d overdue jobs, of which %d waited for running jobs", heads, waits); waits < 100 {
		t.Errorf("got %d overdue jobs that waited for running jobs, want at least 100", waits)
	}
}
