package scheduler

import "fmt"

// srf starts the job with the shortest remaining running time on the free GPUs on which it is fastest. No GPU is idle
// if a job of the queue can use it. The policy never stops a job.
type srf struct{ placer }

func (p *srf) Name() string { return "srf" }

func (p *srf) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	return nil
}

func (p *srf) Decide(s *State) Action {
	if p.count(s) == 0 {
		return Action{}
	}
	job, least := -1, 0.0
	for _, q := range s.Queue {
		if _, speed, ok := p.fastest(s, q); ok {
			if seconds := s.Remaining[q] / speed; job < 0 || seconds < least {
				job, least = q, seconds
			}
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
