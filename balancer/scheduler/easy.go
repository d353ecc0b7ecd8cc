package scheduler

import (
	"fmt"
	"math"
)

// easy is first come, first served with EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, 1995). Jobs start in
// the order of arrival, each on the free GPUs on which it is fastest. If the first job does not fit, it gets a
// reservation: the GPUs on which it can start first, by the predicted ends of the running jobs. A later job starts
// before the first one only if it does not delay the first one. Either it ends before the reservation begins, or it
// uses neither the reserved GPUs nor the CPU cores and the host memory that the first job needs.
//
// The policy never stops a job. While GPUs are free and the first job does not fit, a decision copies the availability
// of all GPUs and the free resources of all machines, and goes through all shapes of jobs in the workload. It also
// releases the running jobs one after the other until the first job fits.
type easy struct {
	backfill
	queue waiting
}

func (p *easy) Name() string { return "easy" }

func (p *easy) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.queue.reset(len(w.Jobs), len(p.shapes.first))
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
	// in the order of arrival
	p.queue.sync(s, func(job int) (int, float64) { return p.shapes.of[job], float64(job) })
	small := false // some job may fit
	for shape, job := range p.shapes.first {
		small = small || p.queue.lists[shape].n > 0 && s.Workload.Jobs[job].GPUs <= free && shape != p.shapes.of[head]
	}
	if !small {
		return Action{}
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
