package scheduler

import "fmt"

// fcfs starts jobs in the order of arrival. The first job that does not fit blocks all others. It takes the first type of
// GPU, in the order of the cluster, that has enough free GPUs.
type fcfs struct {
	explain bool
	gpus    []int
}

func (p *fcfs) Name() string { return "fcfs" }

func (p *fcfs) Reset(c *Cluster, _ *Workload, _ Speeds) error {
	p.gpus = make([]int, 0, len(c.GPUs))
	return nil
}

func (p *fcfs) Decide(s *State) Action {
	if len(s.Queue) == 0 {
		return Action{}
	}
	job := s.Queue[0]
	for t := range s.Cluster.Types {
		gpus, _, ok := s.Place(job, t, p.gpus[:0])
		if !ok {
			continue
		}
		a := Action{Verb: Start, Job: job, GPUs: gpus}
		if p.explain {
			a.Reason = fmt.Sprintf("first of %d jobs in the queue; %s is the first type with %d free GPUs", len(s.Queue),
				s.Cluster.Types[t].Name, len(gpus))
		}
		return a
	}
	return Action{}
}
