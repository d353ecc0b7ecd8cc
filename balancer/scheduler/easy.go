package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// easy is first come, first served with EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, 1995). Jobs start in
// the order of arrival, each on the free GPUs on which it is fastest. If the first job does not fit, it gets a
// reservation: the GPUs on which it can start first, by the predicted ends of the running jobs. A later job starts
// before the first one only if it does not delay the first one. Either it ends before the reservation begins, or it
// uses neither the reserved GPUs nor the CPU cores and the host memory that the first job needs.
//
// The policy never stops a job. If GPUs are free and the first job does not fit, a decision takes longer: it releases
// running jobs, in a copy of the state, until the first job fits. It then goes through all classes of waiting jobs.
type easy struct {
	backfill
	queue waiting
}

func (p *easy) Name() string { return "easy" }

func (p *easy) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.queue.reset(&p.shapes, false)
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
	p.queue.sync(s, func(job int) (float64, bool) { return float64(job), true }) // in the order of arrival
	p.asked.begin()
	p.asked.refuse(p.shapes.of[head])
	if !slices.ContainsFunc(p.queue.active, func(class int) bool {
		return p.shapes.classes[class].gpus <= free && !p.asked.none(class)
	}) {
		return Action{} // no job fits
	}
	begins := p.reserve(s, head)
	q := p.passing(s, &p.queue, math.Inf(1), begins)
	if q < 0 {
		return Action{}
	}
	gpus, why, _ := p.around(s, q, begins)
	a := Action{Verb: Start, Job: q, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("%s, the first of %d in the queue; this job %s, on %s",
			reservation(s.Workload.Jobs[head].Name, begins), len(s.Queue), why, s.types(gpus))
	}
	return a
}
