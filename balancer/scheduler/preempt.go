package scheduler

import (
	"math"
	"slices"
)

// preemptor stops running jobs for a job of the queue. The GPUs of the stopped jobs stay free until this job starts.
type preemptor struct {
	backfill
	job     int     // job for which other jobs were stopped; -1: none
	gpus    []int   // GPUs that this job gets
	victims []int   // jobs that are yet to be stopped
	stays   answers // no jobs can be stopped for shapes that are refused
	leaving []int   // indices into State.Running: buffer of preempt
	yields  []int   // by type: GPUs of these jobs
}

func newPreemptor(o Options) preemptor {
	return preemptor{backfill: backfill{placer: placer{explain: o.Explain}}}
}

func (p *preemptor) reset(c *Cluster, w *Workload, s Speeds) {
	p.backfill.reset(c, w, s)
	p.job, p.victims = -1, p.victims[:0]
	p.stays.reset(&p.shapes)
	p.yields = make([]int, len(c.Types))
}

// begin makes the answers of earlier decisions invalid.
func (p *preemptor) begin() {
	p.asked.begin()
	p.stays.begin()
}

// waits reports whether a job finds no free GPUs in a state that settle returned.
func (p *preemptor) waits(view *State, job int) bool {
	if is, known := p.asked.of(p.shapes.of[job]); known {
		return !is.ok
	}
	x := p.indexOf(view)
	p.countOf(view, x)
	_, ok := p.ask(view, x, &p.asked, job)
	return !ok
}

// gpusOf returns the GPUs for a job that does not wait. The slice is valid until the next call.
func (p *preemptor) gpusOf(view *State, job int) []int {
	x := p.indexOf(view)
	p.countOf(view, x)
	gpus, _, _ := p.fastestOf(view, x, job)
	return gpus
}

// stop returns the next job to stop; ok is false if there is none.
func (p *preemptor) stop(s *State) (job int, ok bool) {
	for len(p.victims) > 0 {
		v := p.victims[len(p.victims)-1]
		p.victims = p.victims[:len(p.victims)-1]
		if slices.ContainsFunc(s.Running, func(r Running) bool { return r.Job == v && math.IsInf(r.Leaves, 1) }) {
			return v, true
		}
	}
	return 0, false
}

// If the GPUs of the job that stopped others are free, settle returns this job, and resets p. Otherwise start is -1,
// and view is the state for other jobs: the state without the resources of this job.
func (p *preemptor) settle(s *State) (start int, view *State) {
	if p.job < 0 {
		return -1, s
	}
	free, usable := p.held(s)
	switch {
	case !usable:
		p.job = -1
	case free:
		start, p.job = p.job, -1
		return start, s
	default:
		p.reserved = append(p.reserved[:0], p.gpus...)
		p.copyOf(s)
		p.leave(s, p.job)
		return -1, &p.rest
	}
	return -1, s
}

// held reports whether the GPUs for the job that stopped others are free, and whether the job can still use them.
func (p *preemptor) held(s *State) (free, usable bool) {
	if !s.queued(p.job) || slices.ContainsFunc(p.gpus, func(g int) bool { return !s.Up[g] }) {
		return false, false
	}
	if slices.ContainsFunc(p.gpus, func(g int) bool { return len(s.OnGPU[g]) > 0 }) {
		return false, true
	}
	_, why := s.Fit(p.job, p.gpus)
	return true, why == Fits
}

// indexOf returns the index of a state that settle returned.
func (p *preemptor) indexOf(view *State) *freeIndex {
	if view == &p.rest {
		return &p.restIndex
	}
	return &p.index
}

// stopping is a result of preempt.
type stopping int

const (
	stopSome    stopping = iota // the jobs to stop are chosen
	stopNone                    // no running job yields
	stopFew                     // the jobs that yield have too few GPUs, or too few CPU cores or too little memory
	stopFewGPUs                 // the jobs that yield have too few GPUs of each type
	stopUnfit                   // the job would also need CPU cores or memory of other jobs
	stopTaken                   // another job still waits for the GPUs of stopped jobs
)

// preempt chooses running jobs to stop for a job, among those for which yields is true. It does not stop a job that
// loads its checkpoint.
func (p *preemptor) preempt(s *State, job int, yields func(r *Running) bool) stopping {
	if p.job >= 0 {
		return stopTaken
	}
	if why := p.yielding(s, job, yields); why != stopSome {
		return why
	}
	p.copyOf(s)
	for _, i := range p.leaving {
		p.release(&s.Running[i])
	}
	p.countOf(&p.later, &p.laterIndex)
	gpus, _, ok := p.fastestOf(&p.later, &p.laterIndex, job)
	if !ok {
		return stopFew
	}
	p.gpus = append(p.gpus[:0], gpus...)
	p.copyOf(s)
	for i := range s.Running {
		if r := &s.Running[i]; slices.ContainsFunc(r.GPUs, func(g int) bool { return slices.Contains(p.gpus, g) }) {
			p.victims = append(p.victims, r.Job)
			p.release(r)
		}
	}
	if _, why := p.later.Fit(job, p.gpus); why != Fits || len(p.victims) == 0 {
		p.victims = p.victims[:0]
		return stopUnfit
	}
	p.job = job
	return stopSome
}

// yielding is the part of preempt that ignores CPU cores and memory: it lists the jobs that yield in p.leaving. It
// returns stopSome if their GPUs may suffice.
func (p *preemptor) yielding(s *State, job int, yields func(r *Running) bool) stopping {
	clear(p.yields)
	some := false
	p.leaving = p.leaving[:0]
	for i := range s.Running {
		if r := &s.Running[i]; math.IsInf(r.Leaves, 1) && r.Ready <= s.Now && yields(r) {
			p.leaving = append(p.leaving, i)
			for _, g := range r.GPUs {
				p.yields[s.Cluster.GPUs[g].Type]++
			}
			some = true
		}
	}
	if !some {
		return stopNone
	}
	p.count(s)
	if !p.mixed(job) && !p.enough(s.Workload.Jobs[job].GPUs) {
		return stopFewGPUs
	}
	return stopSome
}

// enough reports whether a type can have n free GPUs after all jobs that yield have stopped.
func (p *preemptor) enough(n int) bool {
	for t, free := range p.free {
		if free+p.yields[t] >= n {
			return true
		}
	}
	return false
}
