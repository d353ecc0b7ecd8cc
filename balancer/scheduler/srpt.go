package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// srpt starts the job with the shortest remaining processing time on the free GPUs on which it is fastest. If there are none, it
// stops running jobs that need longer. It counts the price of a stop: the time in which the stopped job writes its checkpoint
// and loads it again. The GPUs of stopped jobs stay free until the job that needs them starts.
//
// With one machine and no price, this order has the least mean completion time (Schrage, A Proof of the Optimality of the
// Shortest Remaining Processing Time Discipline, 1968). Large gangs may wait forever.
type srpt struct {
	backfill
	order   []int // jobs of the queue, shortest first
	seconds []float64
	job     int       // for which running jobs were stopped; -1: none
	gpus    []int     // that this job gets
	victims []int     // jobs that are yet to be stopped
	rates   []float64 // by job: on its fastest type, steps/s
}

func (p *srpt) Name() string { return "srpt" }

func (p *srpt) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.job, p.victims, p.seconds = -1, p.victims[:0], make([]float64, len(w.Jobs))
	p.rates = make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		p.rates[i] = fastestSpeed(c, &w.Jobs[i], s)
	}
	return nil
}

func (p *srpt) Decide(s *State) Action {
	for len(p.victims) > 0 {
		v := p.victims[len(p.victims)-1]
		p.victims = p.victims[:len(p.victims)-1]
		if slices.ContainsFunc(s.Running, func(r Running) bool { return r.Job == v && math.IsInf(r.Leaves, 1) }) {
			a := Action{Verb: Stop, Job: v}
			if p.explain {
				a.Reason = fmt.Sprintf("job %q has a shorter remaining time, %s, and no free GPUs", s.Workload.Jobs[p.job].Name, seconds(p.seconds[p.job]))
			}
			return a
		}
	}
	view := s
	if p.job >= 0 {
		free, usable := p.held(s)
		switch {
		case !usable:
			p.job = -1
		case free:
			job := p.job
			p.job = -1
			return p.start(s, job, p.gpus, "the jobs on its GPUs need longer, so they were stopped")
		default: // other jobs do not use the GPUs of this one
			p.reserved = append(p.reserved[:0], p.gpus...)
			p.copyOf(s)
			p.leave(s, p.job)
			view = &p.rest
		}
	}
	p.order = p.order[:0]
	for _, q := range view.Queue {
		if q == p.job {
			continue
		}
		p.seconds[q] = math.Inf(1) // of a job that needs several types
		if p.rates[q] > 0 {
			p.seconds[q] = p.load(s, q) + s.Remaining[q]/p.rates[q]
		}
		p.order = append(p.order, q)
	}
	slices.SortFunc(p.order, func(a, b int) int { return cmp.Or(cmp.Compare(p.seconds[a], p.seconds[b]), cmp.Compare(a, b)) })
	for _, q := range p.order {
		p.count(view)
		if gpus, _, ok := p.fastest(view, q); ok {
			return p.start(s, q, gpus, "the job has the shortest remaining time of the jobs that fit")
		}
		if p.job < 0 && p.preempt(s, q) {
			return p.Decide(s)
		}
	}
	return Action{}
}

func (p *srpt) start(s *State, job int, gpus []int, why string) Action {
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("%s: %s on %s", why, seconds(p.seconds[job]), s.types(gpus))
	}
	return a
}

// held reports whether the GPUs of the job that stopped others are free, and whether the job can still use them.
func (p *srpt) held(s *State) (free, usable bool) {
	if !slices.Contains(s.Queue, p.job) || slices.ContainsFunc(p.gpus, func(g int) bool { return !s.Up[g] }) {
		return false, false
	}
	if slices.ContainsFunc(p.gpus, func(g int) bool { return len(s.OnGPU[g]) > 0 }) {
		return false, true
	}
	_, why := s.Fit(p.job, p.gpus)
	return true, why == Fits
}

// preempt chooses running jobs to stop for a job, if all of them need longer. It returns false if there are none.
func (p *srpt) preempt(s *State, job int) bool {
	p.copyOf(s)
	longer := false
	for i := range s.Running {
		r := &s.Running[i]
		kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		// Both times are those on the fastest type, so that no two jobs can stop each other.
		if math.IsInf(r.Leaves, 1) && r.Ready <= s.Now && r.Remaining > p.rates[r.Job]*(p.seconds[job]+kind.Save+kind.Load) {
			p.release(&p.later, r)
			longer = true
		}
	}
	if !longer {
		return false
	}
	p.count(&p.later)
	gpus, _, ok := p.fastest(&p.later, job)
	if !ok {
		return false
	}
	p.gpus = append(p.gpus[:0], gpus...)
	p.copyOf(s)
	for i := range s.Running {
		if r := &s.Running[i]; slices.ContainsFunc(r.GPUs, func(g int) bool { return slices.Contains(p.gpus, g) }) {
			p.victims = append(p.victims, r.Job)
			p.release(&p.later, r)
		}
	}
	if _, why := p.later.Fit(job, p.gpus); why != Fits || len(p.victims) == 0 { // it also needs CPU cores or memory of other jobs
		p.victims = p.victims[:0]
		return false
	}
	p.job = job
	return true
}
