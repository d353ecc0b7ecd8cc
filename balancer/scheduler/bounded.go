package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// Bound is the waiting time of a job, from its arrival, after which it is overdue: see [Limit].
//
// If Easy is 0, the bound is Factor times the running time of the job on its fastest type of GPU, plus Seconds. Factor
// does not count for a job with [Job.Guessed].
//
// If Easy is above 0, the bound is Easy times the longest wait that a job of as many GPUs would have had up to now
// under policy easy, but at least Seconds. Factor does not count. A simulation of policy easy states these waits.
// The jobs must be in the order of their arrival.
type Bound struct {
	Factor  float64
	Seconds float64
	Easy    float64
}

// DefaultBound follows the waits under policy easy, so it needs no choice for a load or for a length of jobs. Easy
// is below 2, because an overdue job may have to wait for others: the aim is to wait at most twice as long as under
// easy. Seconds count only while no job waits for half an hour under easy: with fewer, jobs would be stopped in a
// nearly empty cluster.
var DefaultBound = Bound{Easy: 1.9, Seconds: 3600}

// StaticBound needs no history. It suits jobs of minutes to hours. With a smaller bound, long jobs of many GPUs wait
// less, and short jobs wait longer. docs/benchmarks/scheduling.md compares several bounds.
var StaticBound = Bound{Factor: 2, Seconds: 3600}

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

type bounded struct {
	preemptor
	Policy
	bound   Bound
	due     []float64 // by job: time in s
	next    float64   // time in s
	head    int       // the job that became overdue first
	young   int       // jobs before it arrived at least bound.Seconds ago
	old     waiting   // jobs that arrived at least bound.Seconds ago, by due
	shorter waiting   // all jobs, by remaining steps

	// only if bound.Easy is above 0
	shadow *shadows  // policy easy
	stops  bool      // running jobs may be stopped
	late   []int     // by index into shapes.sizes: the jobs of this size before it have been overdue
	line   waiting   // all jobs, by arrival, one list for each size
	age    waiting   // all jobs, by arrival
	order  waiting   // all jobs, by remaining GPU time on their fastest type, in s
	swaps  swaps     // of this decision: which demands swap has tried in vain
	rates  []float64 // by job: steps/s on its fastest type, as in srpt
	save   float64   // s: the longest time to write a checkpoint
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
