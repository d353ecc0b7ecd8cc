package scheduler

import "fmt"

// srf starts the job with the shortest remaining running time on the free GPUs on which it is fastest. No GPU is idle
// if a job of the queue can use it. The policy never stops a job.
type srf struct {
	placer
	queue waiting // by remaining steps
}

func (p *srf) Name() string { return "srf" }

func (p *srf) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.queue.reset(len(w.Jobs), len(p.shapes.first))
	return nil
}

func (p *srf) Decide(s *State) Action {
	if p.count(s) == 0 {
		return Action{}
	}
	p.queue.sync(s, func(job int) (int, float64) { return p.shapes.of[job], s.Remaining[job] })
	job, least := -1, 0.0
	for i := range p.queue.lists {
		at := p.queue.lists[i].first()
		x, ok := at.get()
		if !ok {
			continue
		}
		_, speed, fits := p.fastest(s, x.id)
		if !fits {
			continue
		}
		for ; ok; x, ok = at.get() { // the first one of the jobs with the shortest time
			seconds := s.Remaining[x.id] / speed
			if job >= 0 && seconds > least {
				break
			}
			if job < 0 || seconds < least || x.id < job {
				job, least = x.id, seconds
			}
			at.next()
		}
	}
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
