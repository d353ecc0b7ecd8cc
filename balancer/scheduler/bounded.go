package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Bound is the maximum waiting time of a job; after it, no other job may start if this delays the job. It is Factor
// times the running time of the job on its fastest type of GPU, plus Seconds, from its arrival. Factor does not count
// for a job with [Job.Guessed].
type Bound struct {
	Factor  float64
	Seconds float64
}

// DefaultBound suits jobs of minutes to hours. With a smaller bound, long jobs of many GPUs wait less, and short jobs
// wait longer. docs/benchmarks/scheduling.md compares several bounds.
var DefaultBound = Bound{Factor: 2, Seconds: 3600}

// Limit returns policy p with a bound of the waiting time of jobs. A job that has waited for longer than its bound is
// overdue. The job that became overdue first gets a reservation, as the first job of policy easy does. The other
// overdue jobs come next, in the order in which they became overdue, if they do not delay the first one. Policy p
// decides about the resources that are left. The policy starts the shortest fitting job on reserved GPUs that are still
// free, if the job ends before the reservation begins.
//
// If the cluster is overloaded, all jobs are overdue, and the result is close to policy easy. Otherwise a job waits at
// most until its bound, and then for the overdue jobs before it and for the running jobs whose GPUs it needs.
//
// If explain is set, the actions have reasons. The result implements [Waiter]; its method Unwrap returns p.
func Limit(p Policy, b Bound, explain bool) Policy {
	return &bounded{backfill: backfill{placer: placer{explain: explain}}, Policy: p, bound: b}
}

type bounded struct {
	backfill
	Policy
	bound   Bound
	due     []float64 // by job: time in s
	overdue []int
	next    float64 // time in s
}

// Unwrap returns the policy without the bound.
func (p *bounded) Unwrap() Policy { return p.Policy }

func (p *bounded) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.backfill.reset(c, w, s)
	p.due = make([]float64, len(w.Jobs))
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
	p.overdue, p.next = p.overdue[:0], math.Inf(1)
	for _, q := range s.Queue {
		if earliest := s.Workload.Jobs[q].Arrival + p.bound.Seconds; s.Now < earliest {
			// as for all jobs that arrived later
			p.next = min(p.next, earliest)
			break
		}
		if s.Now >= p.due[q] {
			p.overdue = append(p.overdue, q)
		} else {
			p.next = min(p.next, p.due[q])
		}
	}
	if len(p.overdue) == 0 {
		return p.Policy.Decide(s)
	}
	slices.SortFunc(p.overdue, func(a, b int) int { return cmp.Or(cmp.Compare(p.due[a], p.due[b]), cmp.Compare(a, b)) })
	first := p.overdue[0]
	p.count(s)
	if gpus, _, ok := p.fastest(s, first); ok {
		return p.start(s, first, gpus, "")
	}
	begins := p.reserve(s, first)
	for _, q := range p.overdue[1:] {
		if gpus, why, ok := p.around(s, q, begins); ok {
			return p.start(s, q, gpus,
				fmt.Sprintf("; %s, and this job %s", reservation(s.Workload.Jobs[first].Name, begins), why))
		}
	}
	a := p.Policy.Decide(&p.rest)
	if a.Verb != Wait {
		return a
	}
	if filled := p.fill(s, begins); filled.Verb == Start {
		return filled
	}
	return a
}

// fill starts the job with the shortest running time on free GPUs that are reserved, if it ends before the reservation
// begins.
func (p *bounded) fill(s *State, begins float64) Action {
	p.free = p.now
	defer func() { p.free = p.counts }()
	shortest, job := begins, -1
	for _, q := range s.Queue {
		if _, speed, ok := p.fastest(s, q); ok {
			if v := p.load(s, q) + s.Remaining[q]/speed; v <= shortest {
				shortest, job = v, q
			}
		}
	}
	if job < 0 {
		return Action{}
	}
	gpus, _, _ := p.fastest(s, job)
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("%s, and its bound has ended; this job ends in %s on %s",
			reservation(s.Workload.Jobs[p.overdue[0]].Name, begins), seconds(shortest), s.types(gpus))
	}
	return a
}

// start starts an overdue job.
func (p *bounded) start(s *State, job int, gpus []int, after string) Action {
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf("the job arrived %s ago, and its bound is %s; it starts on %s%s",
			seconds(s.Now-s.Workload.Jobs[job].Arrival), seconds(p.due[job]-s.Workload.Jobs[job].Arrival),
			s.types(gpus), after)
	}
	return a
}

// Waits returns the reason of the other policy.
func (p *bounded) Waits(s *State, job int) string { return WhyWaits(p.Policy, s, job) }
