package scheduler

import "fmt"

// fcfs starts jobs in the order of arrival. The first job that does not fit blocks all others. A job gets the first
// type of GPU, in the order of the cluster, that has enough free GPUs.
type fcfs struct{ placer }

func (p *fcfs) Name() string { return "fcfs" }

func (p *fcfs) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	return nil
}

func (p *fcfs) Decide(s *State) Action {
	if len(s.Queue) == 0 {
		return Action{}
	}
	gpus, _, ok := p.first(s, s.Queue[0])
	if !ok {
		return Action{}
	}
	a := Action{Verb: Start, Job: s.Queue[0], GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("the job is the first of %d jobs in the queue, and %s", len(s.Queue),
			p.why(s, s.Queue[0], gpus, s.types(gpus)+" is the first type with enough free GPUs"))
	}
	return a
}
