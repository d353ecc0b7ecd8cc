package scheduler

import "math"

func (p *bounded) resetSwap(w *Workload) {
	v := &p.swaps
	*v = swaps{few: make([]int, len(p.shapes.sizes)), class: make([]tries, len(p.shapes.classes)),
		cheapest: math.Inf(1)}
	for k := range w.Kinds {
		cost := w.Kinds[k].Save + w.Kinds[k].Load
		v.cheapest, v.dearest = min(v.cheapest, cost), max(v.dearest, cost)
	}
}

// area returns the remaining GPU time of a job on its fastest type, in s.
func (p *bounded) area(s *State, job int, steps float64) float64 {
	return float64(s.Workload.Jobs[job].GPUs) * (steps / p.rates[job])
}

// swap stops running jobs for a job that waits. Each of them needs more GPU time than this job and the stop, so no two
// jobs can stop each other. Without the stop, the job would wait for longer than the stop takes.
//
// A running job with more GPUs is stopped only if its GPUs suffice for all jobs that wait. Otherwise other jobs would
// use the rest of its GPUs, and it could hardly start again.
//
// Call use first: no job fits on the GPUs that are free.
func (p *bounded) swap(s *State) (victim int, ok bool) {
	p.order.sync(s, func(job int) (float64, bool) {
		return p.area(s, job, s.Remaining[job]) + float64(s.Workload.Jobs[job].GPUs)*p.load(s, job), true
	})
	if len(p.order.active) == 0 {
		return 0, false
	}
	most, free := p.largest(s), p.count(s)
	need := 0 // GPUs of all jobs that wait
	for _, q := range s.Queue {
		if need += s.Workload.Jobs[q].GPUs; need > len(s.Up) {
			break
		}
	}
	p.stays.begin()
	p.swaps.turn++
	for p.order.merge(); p.order.more(); {
		if p.allRefused(p.order.heads[0].class) {
			p.order.skip()
			continue
		}
		if most <= p.order.heads[0].key {
			break
		}
		if q := p.order.heads[0].id; !p.refused(q) && p.try(s, q, free, need) {
			return p.stop(s)
		}
		p.order.pass(most, p.allRefused, p.refused)
	}
	return 0, false
}

// allRefused reports whether swap certainly stops no running jobs for the remaining jobs of a class. Later jobs of a
// refused shape are refused, too, because they need at least as much GPU time.
func (p *bounded) allRefused(class int) bool {
	return p.swaps.few[p.shapes.classes[class].size] == p.swaps.turn || p.stays.none(class) ||
		p.swaps.at(class).shapes == p.order.unlike[class]
}

// refused reports whether swap certainly stops no running jobs for a job.
func (p *bounded) refused(job int) bool {
	shape := p.shapes.of[job]
	if p.stays.own(shape) { // a shorter job of the same shape was refused
		return true
	}
	if _, known := p.stays.of(shape); !known {
		return false
	}
	p.refuseShape(shape)
	return true
}

// refuseShape records that swap stops no running jobs for later jobs of a shape. The shape has no answer of its own.
func (p *bounded) refuseShape(shape int) {
	p.stays.refuseOnly(shape)
	p.swaps.at(p.shapes.class[shape]).shapes++
}

// try reports whether swap stops running jobs for a job. If not, try records the other jobs that are thereby refused.
// free is the number of free GPUs. need is the number of GPUs of all jobs that wait.
func (p *bounded) try(s *State, job, free, need int) bool {
	v, shape, least := &p.swaps, p.shapes.of[job], p.order.have[job].key
	class := p.shapes.class[shape]
	k := &p.shapes.classes[class]
	if !p.suffice(s, k.gpus, free, need, least, math.Inf(1)) {
		v.few[k.size] = v.turn
		return false
	}
	p.refuseShape(shape)
	if c := v.at(class); k.shapes > 1 && !k.mixed && !c.largest {
		c.largest = true
		if p.noneFor(s, job, free, need, least, p.latest(s, class)) {
			p.stays.refuseAll(class)
			return false
		}
	}
	begins := p.soonest(s, job, v.dearest)
	switch why := p.preemptFor(s, job, free, need, least, begins); {
	case why == stopSome:
		return true
	case begins <= v.dearest || p.shapes.mixed[shape]: // nothing follows for other demands
	case why == stopNone || why == stopFewGPUs:
		p.stays.refuseAll(class)
	case why == stopFew:
		p.stays.refuse(shape)
	}
	return false
}

// latest returns a time in s for which no job of a class waits longer: the wait with the largest demand. It is +Inf if
// that is longer than any stop takes.
func (p *bounded) latest(s *State, class int) (begins float64) {
	k := &p.shapes.classes[class]
	return p.wait(s, k.gpus, p.swaps.dearest, func() bool {
		for t := range p.free {
			if p.laterIndex.searched(&p.later, class, &k.most, t) > 0 {
				return true
			}
		}
		return false
	})
}

// preemptFor chooses running jobs to stop for a job that would otherwise wait for begins s.
func (p *bounded) preemptFor(s *State, job, free, need int, least, begins float64) stopping {
	if why := p.mayStop(s, job, free, need, least, begins); why != stopSome {
		return why
	}
	return p.preempt(s, job, p.yieldsTo(s, job, need, least, begins))
}

// noneFor reports whether the running jobs that yield to a job have too few GPUs if the job would otherwise wait for
// begins s. This then also holds for shorter waits.
func (p *bounded) noneFor(s *State, job, free, need int, least, begins float64) bool {
	return p.mayStop(s, job, free, need, least, begins) != stopSome ||
		p.yielding(s, job, p.yieldsTo(s, job, need, least, begins)) != stopSome
}

// mayStop is the part of preemptFor that does not read all running jobs.
func (p *bounded) mayStop(s *State, job, free, need int, least, begins float64) stopping {
	switch {
	case begins <= p.swaps.cheapest:
		return stopNone
	case !p.suffice(s, s.Workload.Jobs[job].GPUs, free, need, least, begins):
		return stopFewGPUs
	}
	return stopSome
}

// yieldsTo returns whether swap may stop a running job for a job that would otherwise wait for begins s.
func (p *bounded) yieldsTo(s *State, job, need int, least, begins float64) func(r *Running) bool {
	want := s.Workload.Jobs[job].GPUs
	return func(r *Running) bool {
		n, kind := len(r.GPUs), &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		cost := kind.Save + kind.Load
		return !p.isLate(r.Job) && (n <= want || need <= n) && begins > cost &&
			p.area(s, r.Job, s.Steps(r)) > least+cost*float64(n)
	}
}

// most returns a GPU time in s that the remaining GPU time of a running job of a group does not exceed. It is larger
// only by rounding errors.
func (p *bounded) most(s *State, g *group, x item) float64 {
	left := x.key - s.Now + margin(x.key, s.Now)
	return p.area(s, p.shapes.first[g.shape], left*g.speed) * (1 + endPrecision)
}

// largest returns the largest remaining GPU time of a running job, in s. It may be larger by rounding errors.
func (p *bounded) largest(s *State) (most float64) {
	p.ends.sync(s, &p.shapes)
	for _, groups := range p.ends.bySize {
		for _, g := range groups {
			at := g.jobs.last()
			if x, ok := at.get(); ok {
				most = max(most, p.most(s, g, x))
			}
		}
	}
	return most
}

// suffice reports whether the running jobs that swap may stop for a job of want GPUs have enough GPUs, together with
// the free ones. It reads only jobs with more GPU time than least (in s), the longest ones first, so that swap does not
// read all running jobs at each event. need is the number of GPUs of all jobs that wait. The job would wait for begins
// s. Call largest first.
func (p *bounded) suffice(s *State, want, free, need int, least, begins float64) bool {
	for size, groups := range p.ends.bySize {
		n := p.shapes.sizes[size]
		if n > want && need > n {
			continue
		}
		for _, g := range groups {
			kind := &s.Workload.Kinds[s.Workload.Jobs[p.shapes.first[g.shape]].Kind]
			cost := kind.Save + kind.Load
			if begins <= cost {
				continue
			}
			for at := g.jobs.last(); free < want; at.prev() {
				x, ok := at.get()
				if !ok || p.most(s, g, x) < least+cost*float64(n) {
					break
				}
				if !p.isLate(x.id) {
					free += n
				}
			}
			if free >= want {
				return true
			}
		}
	}
	return free >= want
}
