package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// Limit returns policy p with a bound of the waiting time of jobs. A job that has waited for longer than its bound is
// overdue. The job that became overdue first gets a reservation, as the first job of policy easy does. The other
// overdue jobs come next, in the order in which they became overdue, if they do not delay the first one. Policy p
// decides about the resources that are left. The policy starts the shortest fitting job on reserved GPUs that are still
// free, if the job ends before the reservation begins.
//
// If the cluster is overloaded, all jobs are overdue, and the result is close to policy easy. Otherwise a job waits at
// most until its bound, and then for the overdue jobs before it and for the running jobs whose resources it needs.
// These may end later than predicted: if the network slows them down, if a GPU fails, or if the reservation waits for
// CPU cores or memory of a job on other GPUs, and p lets a further job share these GPUs.
//
// If [Bound.Easy] is above 0 and Options.Keep is not set, the policy also stops running jobs that have not been
// overdue:
//
//   - for the job that became overdue first, if it would wait for longer than a checkpoint takes
//   - while no job is overdue: for a job that needs less GPU time than each of the stopped jobs, if it would wait for
//     longer than the stop takes
//
// As such stops are possible, the oldest job that fits uses GPUs that p leaves free while no job is overdue.
//
// If Options.Explain is set, the actions have reasons. The result implements [Waiter]; its method Unwrap returns p.
func Limit(p Policy, b Bound, o Options) Policy {
	v := &bounded{preemptor: newPreemptor(o), Policy: p, bound: b, stops: b.Easy > 0 && !o.Keep}
	if b.Easy > 0 {
		v.shadow = &shadows{}
	}
	return v
}

// Unwrap returns the policy without the bound.
func (p *bounded) Unwrap() Policy { return p.Policy }

// Incremental implements [Incremental].
func (p *bounded) Incremental() bool {
	v, ok := p.Policy.(Incremental)
	return ok && v.Incremental()
}

func (p *bounded) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.preemptor.reset(c, w, s)
	p.young = 0
	p.old.reset(&p.shapes, true)
	p.shorter.reset(&p.shapes, false)
	p.due = make([]float64, len(w.Jobs))
	if p.shadow != nil {
		if err := p.resetShadow(c, w, s); err != nil {
			return err
		}
		return p.Policy.Reset(c, w, s)
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		p.due[i] = j.Arrival + p.bound.Seconds
		if speed := fastestSpeed(c, j, s); speed > 0 && !j.Guessed {
			p.due[i] += p.bound.Factor * (j.Work / speed)
		}
	}
	return p.Policy.Reset(c, w, s)
}

func (p *bounded) Decide(s *State) Action {
	a := p.decide(s)
	if a.Verb == Wait && p.next > s.Now && (a.Until == 0 || p.next < a.Until) && !math.IsInf(p.next, 1) {
		a.Until = p.next
	}
	return a
}

// decide also sets p.next. No other job becomes overdue before this time.
func (p *bounded) decide(s *State) Action {
	if p.shadow != nil {
		if a, done := p.decideShadow(s); done {
			return a
		}
	} else {
		p.sort(s)
	}
	if p.head < 0 {
		return p.Policy.Decide(s)
	}
	p.count(s)
	if gpus, _, ok := p.fastest(s, p.head); ok {
		return p.start(s, p.head, gpus, "")
	}
	begins := p.reserve(s, p.head)
	if p.stops && begins > p.save {
		if a, ok := p.stopFor(s); ok {
			return a
		}
	}
	if q := p.passing(s, &p.old, s.Now, begins); q >= 0 {
		gpus, why, _ := p.around(s, q, begins)
		return p.start(s, q, gpus,
			fmt.Sprintf("; %s, and this job %s", reservation(s.Workload.Jobs[p.head].Name, begins), why))
	}
	p.mark(s)
	a := p.Policy.Decide(&p.rest)
	p.mark(s)
	if a.Verb != Wait {
		return a
	}
	if filled := p.fill(s, begins); filled.Verb == Start {
		return filled
	}
	return a
}

// sort updates p.old, p.head and p.next.
func (p *bounded) sort(s *State) {
	at := func(job int) float64 { return s.Workload.Jobs[job].Arrival + p.bound.Seconds }
	rank := func(job int) (key float64, listed bool) { return p.due[job], job < p.young }
	p.next, p.head = math.Inf(1), -1
	if s.Journal == nil { // such a state may have jobs in any order of arrival
		p.old.sync(s, func(int) (float64, bool) { return 0, false })
		for _, q := range s.Queue {
			if s.Now < at(q) {
				p.next = min(p.next, at(q))
				continue
			}
			p.old.add(s, q, func(job int) (float64, bool) { return p.due[job], true })
		}
	} else {
		p.old.sync(s, rank)
		for n := len(p.due); p.young < n && !(s.Now < at(p.young)); {
			p.young++
			if s.queued(p.young - 1) {
				p.old.drop(p.young - 1)
				p.old.add(s, p.young-1, rank)
			}
		}
		if i, _ := slices.BinarySearch(s.Queue, p.young); i < len(s.Queue) {
			p.next = at(s.Queue[i])
		}
	}
	first := p.old.all.first()
	if x, ok := first.get(); ok && x.key <= s.Now {
		p.head = x.id
	}
	after := p.old.all.from(item{s.Now, math.MaxInt})
	if x, ok := after.get(); ok {
		p.next = min(p.next, x.key)
	}
}

// fill starts the job with the shortest running time on free GPUs that are reserved, if it ends before the reservation
// begins.
func (p *bounded) fill(s *State, begins float64) Action {
	p.free = p.now
	defer func() { p.free = p.counts }()
	p.shorter.sync(s, func(job int) (float64, bool) { return s.Remaining[job], true })
	p.asked.begin()
	job, shortest := p.shorter.shortest(begins, true, p.fastestRate, func(job int) (v float64, ok bool) {
		speed, ok := p.ask(s, &p.index, &p.asked, job)
		return p.load(s, job) + s.Remaining[job]/speed, ok
	})
	if job < 0 {
		return Action{}
	}
	gpus, _, _ := p.fastest(s, job)
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("%s, and its bound has ended; this job ends in %s on %s",
			reservation(s.Workload.Jobs[p.head].Name, begins), seconds(shortest), s.types(gpus))
	}
	return a
}

// Waits returns the reason of the other policy.
func (p *bounded) Waits(s *State, job int) string { return WhyWaits(p.Policy, s, job) }
