package scheduler

import (
	"fmt"
	"math"
)

// srf starts the job with the shortest remaining running time on the free GPUs on which it is fastest. No GPU is idle
// if a job of the queue can use it. The policy never stops a job.
type srf struct {
	placer
	queue waiting // by remaining steps
}

func (p *srf) Name() string { return "srf" }

func (p *srf) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.queue.reset(&p.shapes, false)
	return nil
}

func (p *srf) Decide(s *State) Action {
	if p.count(s) == 0 {
		return Action{}
	}
	p.queue.sync(s, func(job int) (float64, bool) { return s.Remaining[job], true })
	p.asked.begin()
	job, least := p.queue.shortest(math.Inf(1), false, p.fastestRate, func(job int) (v float64, ok bool) {
		speed, ok := p.ask(s, &p.index, &p.asked, job)
		return s.Remaining[job] / speed, ok
	})
	if job < 0 {
		return Action{}
	}
	gpus, _, _ := p.fastest(s, job)
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("the job has the shortest remaining time of the jobs that fit: %s on %s", seconds(least),
			s.types(gpus))
	}
	return a
}
