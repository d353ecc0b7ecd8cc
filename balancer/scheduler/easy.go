package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// easy is first come, first served with EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, 1995). Jobs start in the
// order of arrival, each on the free GPUs on which it is fastest. If the first job does not fit, it gets a reservation: the
// GPUs on which it can start first, by the predicted ends of the running jobs. A later job starts before the first one only
// if it does not delay it: it ends before the reservation begins, or it uses neither the reserved GPUs nor the CPU cores and
// the host memory that the first job needs.
//
// The policy never stops a job. A decision takes time proportional to running jobs times machines, plus jobs that wait.
type easy struct {
	placer
	ends     []ending
	later    State // the cluster when the reservation begins
	rest     State // the cluster now, without the reserved resources
	reserved []int // GPUs
}

// ending is the predicted end of a running job.
type ending struct {
	running int     // index into State.Running
	left    float64 // seconds from now
}

func (p *easy) Name() string { return "easy" }

func (p *easy) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.later.OnGPU = make([][]int, len(c.GPUs))
	p.reserved = make([]int, 0, len(c.GPUs))
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
		if s.Workload.Jobs[q].GPUs > free {
			continue
		}
		p.count(s)
		gpus, speed, ok := p.fastest(s, q)
		if !ok {
			continue
		}
		why := "ends before that"
		if p.load(s, q)+s.Remaining[q]/speed > begins {
			p.count(&p.rest)
			if gpus, _, ok = p.fastest(&p.rest, q); !ok {
				continue
			}
			why = "uses other GPUs"
		}
		a := Action{Verb: Start, Job: q, GPUs: gpus}
		if p.explain {
			a.Reason = fmt.Sprintf("job %q, the first of %d jobs in the queue, can start in %s; this job %s, on %s",
				s.Workload.Jobs[head].Name, len(s.Queue), seconds(begins), why, s.types(gpus))
		}
		return a
	}
	return Action{}
}

// load is the time in which a job that continues loads its checkpoint, in s.
func (p *easy) load(s *State, job int) float64 {
	j := &s.Workload.Jobs[job]
	if s.Remaining[job] < j.Work {
		return s.Workload.Kinds[j.Kind].Load
	}
	return 0
}

// reserve finds the GPUs on which a job can start first, and returns the seconds until then. It is +Inf if the job cannot
// start even after all running jobs, for example because GPUs are not available; then nothing is reserved. It sets p.rest.
func (p *easy) reserve(s *State, job int) (begins float64) {
	p.ends = p.ends[:0]
	for i := range s.Running {
		if left := s.Left(&s.Running[i]); !math.IsInf(left, 1) {
			p.ends = append(p.ends, ending{i, left})
		}
	}
	slices.SortFunc(p.ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.running, b.running)) })
	l := &p.later
	l.Now, l.Cluster, l.Workload, l.Speeds, l.Queue, l.Remaining, l.Up = s.Now, s.Cluster, s.Workload, s.Speeds, s.Queue, s.Remaining, s.Up
	l.FreeCPUs, l.FreeMem = append(l.FreeCPUs[:0], s.FreeCPUs...), append(l.FreeMem[:0], s.FreeMem...)
	for g, on := range s.OnGPU {
		l.OnGPU[g] = append(l.OnGPU[g][:0], on...)
	}
	p.reserved, begins = p.reserved[:0], math.Inf(1)
	for i, e := range p.ends {
		p.release(l, &s.Running[e.running])
		if i+1 < len(p.ends) && p.ends[i+1].left == e.left { // the GPUs of both are free at this time
			continue
		}
		if p.count(l) < s.Workload.Jobs[job].GPUs {
			continue
		}
		if gpus, _, ok := p.fastest(l, job); ok {
			p.reserved, begins = append(p.reserved, gpus...), e.left
			break
		}
	}
	p.leave(s, job)
	return begins
}

// release frees the resources of a running job.
func (p *easy) release(l *State, r *Running) {
	j := &l.Workload.Jobs[r.Job]
	for _, g := range r.GPUs {
		l.OnGPU[g] = slices.DeleteFunc(l.OnGPU[g], func(on int) bool { return on == r.Job })
		m := l.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] += j.CPUs
		l.FreeMem[m] += j.Memory
	}
}

// leave sets p.rest to the state without the reserved GPUs, and without the CPU cores and the memory that a job needs on
// them and that no running job frees until then.
func (p *easy) leave(s *State, job int) {
	j, l, rest := &s.Workload.Jobs[job], &p.later, &p.rest
	up, cpus, memory := append(rest.Up[:0], s.Up...), append(rest.FreeCPUs[:0], s.FreeCPUs...), append(rest.FreeMem[:0], s.FreeMem...)
	*rest = *s
	rest.Up, rest.FreeCPUs, rest.FreeMem = up, cpus, memory
	for _, g := range p.reserved {
		rest.Up[g] = false
		m := s.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] -= j.CPUs
		l.FreeMem[m] -= j.Memory
	}
	for _, g := range p.reserved {
		m := s.Cluster.GPUs[g].Machine
		rest.FreeCPUs[m], rest.FreeMem[m] = min(rest.FreeCPUs[m], l.FreeCPUs[m]), min(rest.FreeMem[m], l.FreeMem[m])
	}
}
