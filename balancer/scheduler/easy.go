package scheduler

import (
	"fmt"
	"slices"
)

// easy is first come, first served with EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, 1995). Jobs start in
// the order of arrival, each on the free GPUs on which it is fastest. If the first job does not fit, it gets a
// reservation: the GPUs on which it can start first, by the predicted ends of the running jobs. A later job starts
// before the first one only if it does not delay the first one. Either it ends before the reservation begins, or it
// uses neither the reserved GPUs nor the CPU cores and the host memory that the first job needs.
//
// The policy never stops a job. A decision takes time proportional to running jobs times machines, plus jobs that wait.
type easy struct{ backfill }

func (p *easy) Name() string { return "easy" }

func (p *easy) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	return nil
}

func (p *easy) Decide(s *State) Action {
	if len(s.Queue) == 0 {
		return Action{}
	}
	free := p.count(s)
	if free == 0 {
		return Action{}
	}
	head := s.Queue[0]
	if gpus, _, ok := p.fastest(s, head); ok {
		a := Action{Verb: Start, Job: head, GPUs: gpus}
		if p.explain {
			a.Reason = fmt.Sprintf("the job is the first of %d jobs in the queue, and %s", len(s.Queue),
				p.why(s, head, gpus, s.types(gpus)+" is the fastest type with enough free GPUs"))
		}
		return a
	}
	if !slices.ContainsFunc(s.Queue[1:], func(q int) bool { return s.Workload.Jobs[q].GPUs <= free }) {
		return Action{}
	}
	begins := p.reserve(s, head)
	for _, q := range s.Queue[1:] {
		gpus, why, ok := p.around(s, q, begins)
		if !ok {
			continue
		}
		a := Action{Verb: Start, Job: q, GPUs: gpus}
		if p.explain {
			a.Reason = fmt.Sprintf("%s, the first of %d in the queue; this job %s, on %s",
				reservation(s.Workload.Jobs[head].Name, begins), len(s.Queue), why, s.types(gpus))
		}
		return a
	}
	return Action{}
}
