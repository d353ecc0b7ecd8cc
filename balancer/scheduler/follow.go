package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// This file contains the parts of a policy of [Limit] for a bound that follows policy easy ([Bound.Easy]).

// resetShadow prepares a run.
func (p *bounded) resetShadow(c *Cluster, w *Workload, s Speeds) error {
	if !slices.IsSortedFunc(w.Jobs, func(a, b Job) int { return cmp.Compare(a.Arrival, b.Arrival) }) {
		return errors.New("the bound of waiting times follows policy easy: got jobs in another order than that of their arrival")
	}
	p.rates = p.topSpeeds(c, w, s)
	if err := p.shadow.reset(c, w, s); err != nil {
		return err
	}
	p.late = make([]int, len(p.shapes.sizes))
	p.line.reset(grouped(p.shadow.runs[0].size, len(p.late)), false)
	p.age.reset(&p.shapes, false)
	p.order.reset(&p.shapes, false)
	p.order.tally()
	p.resetSwap(w)
	for i := range p.due {
		p.due[i] = math.Inf(1)
	}
	p.save = 0
	for k := range w.Kinds {
		p.save = max(p.save, w.Kinds[k].Save)
	}
	return nil
}

// grouped returns the groups of jobs as classes, so that a list of waiting jobs has one list for each group.
func grouped(of []int, groups int) *shapes {
	v := &shapes{of: of, class: make([]int, groups), classes: make([]class, groups)}
	for i := range v.class {
		v.class[i] = i
	}
	return v
}

// sortShadow is sort for a bound that follows policy easy. A job that became overdue remains overdue, even if the bound
// grows.
func (p *bounded) sortShadow(s *State) {
	v := p.shadow
	v.follow(s)
	rank := func(job int) (key float64, listed bool) {
		if !p.isLate(job) {
			return 0, false
		}
		if math.IsInf(p.due[job], 1) {
			p.due[job] = s.Now
		}
		return p.due[job], true
	}
	p.line.sync(s, func(job int) (float64, bool) { return s.Workload.Jobs[job].Arrival, true })
	p.old.sync(s, rank)
	p.next, p.head = math.Inf(1), -1
	for k := range p.late {
		bound := max(p.bound.Seconds, p.bound.Easy*v.wait(k))
		line, from := &p.line.lists[k], p.late[k]
		n := from + sort.Search(s.Arrived-from,
			func(i int) bool { return s.Now < s.Workload.Jobs[from+i].Arrival+bound })
		if p.late[k] = n; n > from {
			for at := line.from(item{s.Workload.Jobs[from].Arrival, from}); ; at.next() {
				x, ok := at.get()
				if !ok || x.id >= n {
					break
				}
				p.old.drop(x.id)
				p.old.add(s, x.id, rank)
			}
		}
		if n < s.Arrived {
			after := line.from(item{s.Workload.Jobs[n].Arrival, n})
			if x, ok := after.get(); ok {
				p.next = min(p.next, x.key+bound)
			}
		}
	}
	first := p.old.all.first()
	if x, ok := first.get(); ok {
		p.head = x.id
	}
}

// decideShadow decides while jobs stop for another job, and while no job is overdue. Otherwise done is false, and
// decide starts the overdue job or makes a reservation for it.
func (p *bounded) decideShadow(s *State) (a Action, done bool) {
	p.sortShadow(s)
	if p.head >= 0 && p.job >= 0 && !p.isLate(p.job) { // the overdue job comes before the job that stopped others
		p.job, p.victims = -1, p.victims[:0]
	}
	if v, ok := p.stop(s); ok {
		return p.yield(s, v), true
	}
	first, view := p.settle(s)
	if first >= 0 {
		return p.startStopped(s, first), true
	}
	if view != s { // running jobs write their checkpoints for job p.job
		p.mark(s)
		a = p.Policy.Decide(view)
		p.mark(s)
		if a.Verb == Start && a.Job == p.job {
			p.job = -1
		}
		return a, true
	}
	if p.head < 0 {
		if a = p.Policy.Decide(s); a.Verb != Wait || !p.stops || len(s.Queue) == 0 {
			return a, true
		}
		if b := p.use(s); b.Verb == Start {
			return b, true
		}
		if v, ok := p.swap(s); ok {
			return p.yield(s, v), true
		}
		return a, true
	}
	return Action{}, false
}

// stopFor chooses running jobs to stop for the job that became overdue first, and stops the first of them. decideShadow
// stops the others. Call reserve first.
func (p *bounded) stopFor(s *State) (a Action, ok bool) {
	if p.preempt(s, p.head, func(r *Running) bool { return !p.isLate(r.Job) }) != stopSome {
		return Action{}, false
	}
	victim, _ := p.stop(s)
	return p.yield(s, victim), true
}

// yield stops a job for job p.job.
func (p *bounded) yield(s *State, job int) Action {
	a := Action{Verb: Stop, Job: job}
	if p.explain {
		why := "needs less GPU time"
		if p.isLate(p.job) {
			why = "has waited for longer than its bound"
		}
		a.Reason = fmt.Sprintf("job %q %s", s.Workload.Jobs[p.job].Name, why)
	}
	return a
}

// startStopped starts the job for which others have stopped.
func (p *bounded) startStopped(s *State, job int) Action {
	if p.isLate(job) {
		return p.start(s, job, p.gpus, ", where other jobs stopped for it")
	}
	a := Action{Verb: Start, Job: job, GPUs: p.gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("the jobs that stopped on %s need more GPU time", s.types(p.gpus))
	}
	return a
}

// use starts the oldest job that fits on GPUs that the policy leaves free. The policy lets jobs wait for faster GPUs.
// Here, a job can start on slow GPUs at a small cost: swap stops it when a shorter job needs these GPUs.
func (p *bounded) use(s *State) Action {
	if p.count(s) == 0 {
		return Action{}
	}
	p.age.sync(s, func(job int) (float64, bool) { return s.Workload.Jobs[job].Arrival, true })
	p.asked.begin()
	most := func(class int) float64 {
		if p.fastestRate(class) == 0 {
			return -1
		}
		return math.Inf(1)
	}
	q := p.age.search(math.Inf(1), most, func(job int) bool {
		_, ok := p.ask(s, &p.index, &p.asked, job)
		return ok
	})
	if q < 0 {
		return Action{}
	}
	gpus, _, _ := p.fastest(s, q)
	a := Action{Verb: Start, Job: q, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("the policy leaves %s free, and this is the oldest job that fits there", s.types(gpus))
	}
	return a
}
