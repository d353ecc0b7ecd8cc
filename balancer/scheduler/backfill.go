package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// backfill reserves GPUs for one job of the queue, and finds places for other jobs that do not delay it. The zero value
// is ready after reset.
type backfill struct {
	placer
	ends     []ending
	later    State // the cluster when the reservation begins
	rest     State // the cluster now, without the reserved resources
	reserved []int // GPUs

	counts, now, left []int // by type: buffer of count; free GPUs now, and of them not reserved
}

// ending is the predicted end of a running job.
type ending struct {
	running int     // index into State.Running
	left    float64 // seconds from now
}

func (p *backfill) reset(c *Cluster, w *Workload, s Speeds) {
	p.placer.reset(c, w, s)
	p.later.OnGPU = make([][]int, len(c.GPUs))
	p.reserved = make([]int, 0, len(c.GPUs))
	p.counts, p.now, p.left = p.free, make([]int, len(c.Types)), make([]int, len(c.Types))
}

// around finds the free GPUs on which a job is fastest, among those where it does not delay the job with the
// reservation. begins is the time until the reservation, in s. why completes the sentence "this job …". Call reserve
// first. The slice is valid until the next call.
func (p *backfill) around(s *State, job int, begins float64) (gpus []int, why string, ok bool) {
	defer func() { p.free = p.counts }()
	p.free = p.now
	gpus, speed, ok := p.fastest(s, job)
	if !ok {
		return nil, "", false
	}
	if p.load(s, job)+s.Remaining[job]/speed <= begins {
		return gpus, "ends before that", true
	}
	p.free = p.left
	gpus, _, ok = p.fastest(&p.rest, job)
	return gpus, "uses other GPUs", ok
}

// load returns the time in s for which a resumed job loads its checkpoint.
func (p *backfill) load(s *State, job int) float64 {
	j := &s.Workload.Jobs[job]
	if s.Remaining[job] < j.Work {
		return s.Workload.Kinds[j.Kind].Load
	}
	return 0
}

// reserve finds the GPUs on which a job can start earliest, sets p.rest, and returns the seconds until this start. The
// result is +Inf if the job cannot start even after all running jobs, for example because GPUs are not available.
// Nothing is reserved then.
func (p *backfill) reserve(s *State, job int) (begins float64) {
	p.ends = p.ends[:0]
	for i := range s.Running {
		if left := s.Left(&s.Running[i]); !math.IsInf(left, 1) {
			p.ends = append(p.ends, ending{i, left})
		}
	}
	slices.SortFunc(p.ends, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.running, b.running))
	})
	p.copyOf(s)
	l := &p.later
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
	p.count(s)
	copy(p.now, p.free)
	p.count(&p.rest)
	copy(p.left, p.free)
	return begins
}

// reservation returns when a job with a reservation can start.
func reservation(name string, begins float64) string {
	if math.IsInf(begins, 1) {
		return fmt.Sprintf("job %q cannot start on the available GPUs", name)
	}
	return fmt.Sprintf("job %q can start in %s", name, seconds(begins))
}

// copyOf sets p.later to the state.
func (p *backfill) copyOf(s *State) {
	l := &p.later
	l.Now, l.Cluster, l.Workload, l.Speeds, l.Queue, l.Remaining, l.Up = s.Now, s.Cluster, s.Workload, s.Speeds,
		s.Queue, s.Remaining, s.Up
	l.FreeCPUs, l.FreeMem = append(l.FreeCPUs[:0], s.FreeCPUs...), append(l.FreeMem[:0], s.FreeMem...)
	for g, on := range s.OnGPU {
		l.OnGPU[g] = append(l.OnGPU[g][:0], on...)
	}
}

// release frees the resources of a running job.
func (p *backfill) release(l *State, r *Running) {
	j := &l.Workload.Jobs[r.Job]
	for _, g := range r.GPUs {
		l.OnGPU[g] = slices.DeleteFunc(l.OnGPU[g], func(on int) bool { return on == r.Job })
		m := l.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] += j.CPUs
		l.FreeMem[m] += j.Memory
	}
}

// leave sets p.rest to the state without the reserved resources. These are the reserved GPUs, and the CPU cores and the
// memory that the job needs with them and that no running job frees until the reservation.
func (p *backfill) leave(s *State, job int) {
	j, l, rest := &s.Workload.Jobs[job], &p.later, &p.rest
	up, cpus, memory := append(rest.Up[:0], s.Up...), append(rest.FreeCPUs[:0], s.FreeCPUs...),
		append(rest.FreeMem[:0], s.FreeMem...)
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
