package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// backfill reserves GPUs for one job of the queue, and finds places for other jobs that do not delay it. The zero value
// is ready after reset.
type backfill struct {
	placer
	ends     endIndex
	coming   upcoming
	later    State // the cluster when the reservation begins
	rest     State // the cluster now, without the reserved resources
	reserved []int // GPUs

	laterIndex, restIndex freeIndex
	read, restRead        reader  // of later and of rest
	undo                  []int   // GPUs of later that differ from the state of the last copyOf
	hidden                []int   // GPUs that are reserved in rest
	restAsked             answers // about restIndex and left

	counts, now, left []int // by type: buffer of count; free GPUs now, and of them not reserved
}

func (p *backfill) reset(c *Cluster, w *Workload, s Speeds) {
	p.placer.reset(c, w, s)
	p.ends.reset(c, w, &p.shapes)
	p.ends.kin = p.shapes.kin()
	p.laterIndex.reset(c, &p.shapes)
	p.restIndex.reset(c, &p.shapes)
	p.restAsked.reset(&p.shapes)
	p.read, p.restRead, p.undo, p.hidden = reader{}, reader{}, p.undo[:0], p.hidden[:0]
	p.later.OnGPU = make([][]int, len(c.GPUs))
	p.reserved = make([]int, 0, len(c.GPUs))
	p.counts, p.now, p.left = p.free, make([]int, len(c.Types)), make([]int, len(c.Types))
}

// around finds the GPUs on which a job is fastest, among the free GPUs on which it does not delay the job with the
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
	gpus, _, ok = p.fastestOf(&p.rest, &p.restIndex, job)
	return gpus, "uses other GPUs", ok
}

// passing returns the first job of a list, in the order of its keys up to a limit, for which around finds GPUs, or -1.
func (p *backfill) passing(s *State, q *waiting, limit, begins float64) int {
	defer func() { p.free = p.counts }()
	p.asked.begin()
	p.restAsked.begin()
	most := func(class int) float64 {
		p.free = p.now
		rate := p.fastestRate(class)
		if rate == 0 {
			return -1
		}
		if p.free = p.left; p.fastestRate(class) > 0 {
			return math.Inf(1)
		}
		return begins * rate * (1 + endPrecision)
	}
	return q.search(limit, most, func(job int) bool {
		p.free = p.now
		speed, ok := p.ask(s, &p.index, &p.asked, job)
		if !ok || p.load(s, job)+s.Remaining[job]/speed <= begins {
			return ok
		}
		p.free = p.left
		_, ok = p.ask(&p.rest, &p.restIndex, &p.restAsked, job)
		return ok
	})
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
	p.reserved = p.reserved[:0]
	if begins = p.soonest(s, job, math.Inf(1)); !math.IsInf(begins, 1) {
		gpus, _, _ := p.fastestOf(&p.later, &p.laterIndex, job)
		p.reserved = append(p.reserved, gpus...)
	}
	p.leave(s, job)
	p.count(s)
	copy(p.now, p.free)
	p.countOf(&p.rest, &p.restIndex)
	copy(p.left, p.free)
	return begins
}

// soonest returns the seconds until running jobs have ended so that a job fits. The result is +Inf if that is later
// than a limit in s. It sets p.later to the state at this time, and p.free to its free GPUs.
func (p *backfill) soonest(s *State, job int, limit float64) (begins float64) {
	return p.wait(s, s.Workload.Jobs[job].GPUs, limit, func() bool {
		_, ok := p.fits(&p.later, &p.laterIndex, job)
		return ok
	})
}

// wait is soonest for a job with n GPUs. fits reports whether it fits in p.later.
func (p *backfill) wait(s *State, n int, limit float64, fits func() bool) (begins float64) {
	p.ends.sync(s, &p.shapes)
	p.coming.reset(s, &p.ends)
	p.copyOf(s)
	for e, ok := p.coming.peek(); ok && !(e.left > limit); {
		p.coming.i++
		p.release(&s.Running[e.running])
		next, more := p.coming.peek()
		if !more || next.left != e.left { // else the GPUs of both are free at this time
			if p.countOf(&p.later, &p.laterIndex) >= n && fits() {
				return e.left
			}
		}
		e, ok = next, more
	}
	return math.Inf(1)
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
	l.Now, l.Cluster, l.Workload, l.Speeds, l.Queue, l.Remaining, l.Up, l.Journal = s.Now, s.Cluster, s.Workload,
		s.Speeds, s.Queue, s.Remaining, s.Up, s.Journal
	list, ok := p.read.gpus(s)
	if !ok {
		l.FreeCPUs, l.FreeMem = append(l.FreeCPUs[:0], s.FreeCPUs...), append(l.FreeMem[:0], s.FreeMem...)
		for g, on := range s.OnGPU {
			l.OnGPU[g] = append(l.OnGPU[g][:0], on...)
		}
		p.undo = p.undo[:0]
		p.laterIndex.journal = nil
		p.laterIndex.sync(l)
		return
	}
	for _, gpus := range [][]int{list, p.undo} {
		for _, g := range gpus {
			l.OnGPU[g] = append(l.OnGPU[g][:0], s.OnGPU[g]...)
			m := s.Cluster.GPUs[g].Machine
			l.FreeCPUs[m], l.FreeMem[m] = s.FreeCPUs[m], s.FreeMem[m]
		}
	}
	p.laterIndex.sync(l)
	for _, g := range p.undo {
		p.laterIndex.touch(l, g)
	}
	p.undo = p.undo[:0]
}

// release frees the resources of a running job in p.later.
func (p *backfill) release(r *Running) {
	l := &p.later
	j := &l.Workload.Jobs[r.Job]
	for _, g := range r.GPUs {
		l.OnGPU[g] = slices.DeleteFunc(l.OnGPU[g], func(on int) bool { return on == r.Job })
		m := l.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] += j.CPUs
		l.FreeMem[m] += j.Memory
		p.undo = append(p.undo, g)
		p.laterIndex.touch(l, g)
	}
}

// leave sets p.rest to the state without the reserved resources. These are the reserved GPUs, and the CPU cores and the
// memory that the job needs with them and that no running job frees until the reservation.
func (p *backfill) leave(s *State, job int) {
	j, l := &s.Workload.Jobs[job], &p.later
	p.restOf(s)
	rest := &p.rest
	for _, g := range p.reserved {
		rest.Up[g] = false
		m := s.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] -= j.CPUs
		l.FreeMem[m] -= j.Memory
		p.undo = append(p.undo, g)
	}
	for _, g := range p.reserved {
		m := s.Cluster.GPUs[g].Machine
		rest.FreeCPUs[m], rest.FreeMem[m] = min(rest.FreeCPUs[m], l.FreeCPUs[m]), min(rest.FreeMem[m], l.FreeMem[m])
	}
	p.restIndex.sync(rest)
	for _, gpus := range [][]int{p.hidden, p.reserved} {
		for _, g := range gpus {
			p.restIndex.touch(rest, g)
		}
	}
	p.hidden = append(p.hidden[:0], p.reserved...)
}

// restOf sets p.rest to the state. With a journal, it copies only GPUs and machines that have changed, and those of
// p.hidden.
func (p *backfill) restOf(s *State) {
	up, cpus, memory := p.rest.Up, p.rest.FreeCPUs, p.rest.FreeMem
	if list, ok := p.restRead.gpus(s); ok {
		for _, gpus := range [][]int{list, p.hidden} {
			for _, g := range gpus {
				m := s.Cluster.GPUs[g].Machine
				up[g], cpus[m], memory[m] = s.Up[g], s.FreeCPUs[m], s.FreeMem[m]
			}
		}
	} else {
		up, cpus, memory = append(up[:0], s.Up...), append(cpus[:0], s.FreeCPUs...), append(memory[:0], s.FreeMem...)
	}
	p.rest = *s
	p.rest.Up, p.rest.FreeCPUs, p.rest.FreeMem = up, cpus, memory
}

// mark records in the journal that policies which read the state next to p.rest see other GPUs.
func (p *backfill) mark(s *State) {
	if s.Journal != nil {
		for _, g := range p.reserved {
			s.Journal.GPU(g)
		}
	}
}
