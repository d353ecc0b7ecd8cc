package scheduler

import "fmt"

// Bound is the waiting time of a job, from its arrival, after which it is overdue: see [Limit].
//
// If Easy is 0, the bound is Factor times the running time of the job on its fastest type of GPU, plus Seconds. Factor
// does not count for a job with [Job.Guessed].
//
// If Easy is above 0, the bound is Easy times the longest wait that a job of as many GPUs would have had up to now
// under policy easy, but at least Seconds. Factor does not count. A simulation of policy easy states these waits. If
// the work is exact, it also predicts the waits of the jobs in its queue. If estimates differ from the work of finished
// jobs, several simulations draw the unknown work. The jobs must be in the order of their arrival.
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

// bounded is the policy that [Limit] returns.
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

// isLate reports whether a job has been overdue. A job that was overdue when it started is never stopped.
func (p *bounded) isLate(job int) bool { return job < p.late[p.shadow.runs[0].size[job]] }

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
