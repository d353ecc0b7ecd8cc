package scheduler

import (
	"fmt"
	"math"
)

// las gives priority to jobs that have had little service, because the work of a job is often not known before it ends.
// It follows the rule 2D-LAS of Tiresias (Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning,
// NSDI 2019) with two queues. The service of a job is the number of its GPUs times the time for which it had them. It
// does not include the time in which the job wrote its checkpoint after a stop.
//
// Jobs with less service than [lasService] are in the first queue, the others in the second. Within a queue, jobs start
// in the order of arrival. A job of the first queue that finds no free GPUs stops jobs of the second queue. Jobs of the
// second queue may wait forever: Tiresias can promote them, but this policy does not. The policy does not use the work
// and the remaining time of jobs.
type las struct {
	preemptor
	service []float64 // by job: GPU seconds
	at      float64   // seconds: service counts up to this time
}

// lasService is the service in GPU seconds that moves a job into the second queue: one GPU hour. The published
// simulator of Tiresias uses 3,250 or 3,600 GPU seconds as the first limit of its policies (dlas-gpu, multi-dlas-gpu).
const lasService = 3600

func (p *las) Name() string { return "las" }

func (p *las) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.service, p.at = make([]float64, len(w.Jobs)), math.Inf(-1)
	return nil
}

// served reports whether a job is in the second queue. The tolerance is for the rounding of sums of times.
func (p *las) served(job int) bool { return p.service[job] >= lasService*(1-1e-9) }

// observe adds the service since the last decision.
func (p *las) observe(s *State) {
	for i := range s.Running {
		r := &s.Running[i]
		p.service[r.Job] += float64(len(r.GPUs)) * (s.Now - max(p.at, r.Since))
	}
	p.at = s.Now
}

func (p *las) Decide(s *State) Action {
	p.observe(s)
	if v, ok := p.stop(s); ok {
		a := Action{Verb: Stop, Job: v}
		if p.explain {
			a.Reason = fmt.Sprintf("it has had %.0f GPU seconds, and job %q, which has had %.0f, finds no free GPUs",
				p.service[v], s.Workload.Jobs[p.job].Name, p.service[p.job])
		}
		return a
	}
	first, view := p.settle(s)
	if first >= 0 {
		return p.start(s, first, p.gpus)
	}
	p.begin()
	for _, second := range []bool{false, true} {
		for _, q := range view.Queue {
			if q == p.job || p.served(q) != second {
				continue
			}
			if !p.waits(view, q) {
				return p.start(s, q, p.gpusOf(view, q))
			}
			if second {
				continue
			}
			if _, stays := p.stays.of(p.shapes.of[q]); !stays {
				if p.preempt(s, q, func(r *Running) bool { return p.served(r.Job) }) == stopSome {
					return p.Decide(s)
				}
				p.stays.refuseOnly(p.shapes.of[q])
			}
		}
	}
	return p.wait(s)
}

// wait returns a wait until the next running job moves into the second queue, where a waiting job can stop it. If no
// job waits, or if no running job will move, the wait ends at the next event.
func (p *las) wait(s *State) Action {
	next := math.Inf(1)
	if len(s.Queue) > 0 {
		for i := range s.Running {
			if r := &s.Running[i]; !p.served(r.Job) {
				next = min(next, s.Now+(lasService-p.service[r.Job])/float64(len(r.GPUs)))
			}
		}
	}
	if math.IsInf(next, 1) || next <= s.Now {
		return Action{}
	}
	return Action{Until: next}
}

func (p *las) start(s *State, job int, gpus []int) Action {
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		queue := "first"
		if p.served(job) {
			queue = "second"
		}
		a.Reason = fmt.Sprintf(
			"it is the oldest job of the %s queue that fits: it has had %.0f GPU seconds; it starts on %s", queue,
			p.service[job], s.types(gpus))
	}
	return a
}
