package scheduler

import (
	"math"
	"slices"
)

// swaps records the results of [bounded.swap] during one decision, by class of the jobs that wait. In a class, a job
// with larger demands of CPU cores and memory waits for at least as long, and finds at most as many GPUs. The jobs of a
// class are in the order of GPU time, so a running job that does not yield to a job does not yield to later ones
// either. swap therefore tries few jobs of most classes. It tries one job of each shape
//
//   - if CPU cores or memory are short after the stops, or the job does not fit on GPUs of one type
//   - if a shape needs more CPU cores and less memory than another shape, so that their demands cannot be ordered
//   - if longer jobs have smaller demands
//
// The time to try a job is proportional to the number of running jobs, and for a job on several types of GPUs also to
// the number of GPUs. If all jobs have different demands, the time of a decision is proportional to the length of the
// queue times the number of running jobs.
type swaps struct {
	costs []float64 // different times to save and load a checkpoint, ascending, in s
	turn  int       // number of the decision
	few   []int     // by index into shapes.sizes: the turn in which too few GPUs can become free
	class []spans
}

// spans describes the jobs of a class.
type spans struct {
	turn   int // the other fields are valid in this turn
	shapes int // for which stays has an answer of their own
	list   []span
}

// span describes demands for which the same running jobs may yield, because the waits of these jobs exceed the same
// costs.
type span struct {
	begins    float64 // s: wait of a job with one of these demands
	low, high demand  // all demands between the two belong to this span
	some      bool    // least is valid
	least     demand  // jobs with this demand, or a larger one, in this span stop no job
}

func (p *bounded) resetSwap(w *Workload) {
	v := &p.swaps
	*v = swaps{few: make([]int, len(p.shapes.sizes)), class: make([]spans, len(p.shapes.classes))}
	for k := range w.Kinds {
		v.costs = append(v.costs, w.Kinds[k].Save+w.Kinds[k].Load)
	}
	slices.Sort(v.costs)
	v.costs = slices.Compact(v.costs)
}

// exceeded returns the number of costs that a wait exceeds.
func (v *swaps) exceeded(begins float64) int {
	n, _ := slices.BinarySearch(v.costs, begins)
	return n
}

// at returns the results for a class.
func (v *swaps) at(class int) *spans {
	c := &v.class[class]
	if c.turn != v.turn {
		c.turn, c.shapes, c.list = v.turn, 0, c.list[:0]
	}
	return c
}

// of returns the span of a demand, or nil if it is not known.
func (v *swaps) of(class int, d demand) *span {
	c := v.at(class)
	for i := range c.list {
		if k := &c.list[i]; k.high.covers(d) && d.covers(k.low) {
			return k
		}
	}
	return nil
}

// add returns the span of a demand whose jobs wait for begins s. Call of first.
func (v *swaps) add(class int, d demand, begins float64) *span {
	c, n := v.at(class), v.exceeded(begins)
	for i := range c.list {
		k := &c.list[i]
		if v.exceeded(k.begins) != n {
			continue
		}
		if d.covers(k.high) {
			k.high = d
		}
		if k.low.covers(d) {
			k.low = d
		}
		return k
	}
	c.list = append(c.list, span{begins: begins, low: d, high: d})
	return &c.list[len(c.list)-1]
}

// refuse records that a job with a demand stops no job, and no later job with a larger demand does.
func (k *span) refuse(d demand) {
	if !k.some || k.least.covers(d) {
		k.some, k.least = true, d
	}
}

// refuses reports whether jobs with a demand are refused.
func (k *span) refuses(d demand) bool { return k.some && d.covers(k.least) }

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
	if len(p.order.active) == 0 || len(p.swaps.costs) == 0 {
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
		d := p.shapes.need(job)
		of := p.swaps.of(p.shapes.class[shape], d)
		if of == nil || p.shapes.mixed[shape] || !of.refuses(d) {
			return false
		}
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
	class, d, longest := p.shapes.class[shape], p.shapes.need(job), v.costs[len(v.costs)-1]
	k := &p.shapes.classes[class]
	single := p.shapes.mixed[shape] // the result allows no conclusion about other demands
	if !p.suffice(s, k.gpus, free, need, least, math.Inf(1)) {
		v.few[k.size] = v.turn
		return false
	}
	p.refuseShape(shape)
	of := v.of(class, d)
	switch {
	case single:
		of = &span{begins: p.soonest(s, job, longest)}
	case of == nil:
		if of = v.add(class, d, p.soonest(s, job, longest)); of.refuses(d) {
			return false
		}
	}
	switch p.preemptFor(s, job, free, need, least, of.begins) {
	case stopSome:
		return true
	case stopNone, stopFewGPUs:
		of.refuse(demand{})
		if of.begins > longest && !single {
			p.stays.refuseAll(class)
		}
	case stopFew:
		of.refuse(d)
		if of.begins > longest {
			p.stays.refuse(shape)
		}
	}
	return false
}

// preemptFor chooses running jobs to stop for a job that would otherwise wait for begins s.
func (p *bounded) preemptFor(s *State, job, free, need int, least, begins float64) stopping {
	want := s.Workload.Jobs[job].GPUs
	if p.swaps.exceeded(begins) == 0 {
		return stopNone
	}
	if !p.suffice(s, want, free, need, least, begins) {
		return stopFewGPUs
	}
	return p.preempt(s, job, func(r *Running) bool {
		n, kind := len(r.GPUs), &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		cost := kind.Save + kind.Load
		return !p.isLate(r.Job) && (n <= want || need <= n) && begins > cost &&
			p.area(s, r.Job, s.Steps(r)) > least+cost*float64(n)
	})
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
