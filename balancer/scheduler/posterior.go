package scheduler

import (
	"math/rand/v2"
	"slices"
)

// neighbours is the number of jobs on each side whose errors are used for a draw. With more, the estimates of these
// jobs differ more from that of the drawn job, and with them the errors. With fewer, draws repeat the same errors.
const neighbours = 16

// posterior is what the true state has shown about the work of jobs. It draws the work of a job from the probability
// distribution that follows from this. A draw is exact while all finished jobs had the work that was stated for them.
//
// The error of a job is its work divided by the work stated at its arrival. Finished jobs have a known error. A job
// that has computed and has not finished has an error above its steps so far divided by its stated work (a censored
// value). Without the latter, errors would be too small: jobs with small errors finish first. A job that was stopped
// before the first inexact job finished counts only when it runs again.
type posterior struct {
	stated   []float64 // by job: its work as stated at its arrival, in steps
	arrived  int       // jobs with a value in stated
	finished []bool    // by job
	inexact  bool      // the work of a finished job differs from the stated work
	news     reader    // jobs of the true state
	listed   []bool    // by job: in list
	list     sorted    // jobs that have computed, by stated work; empty while inexact is false
	fresh    []int     // jobs that finished in this call of follow
	learnt   []span    // stated work of the jobs that the fresh jobs say something about, in steps
	near     []int     // buffer of draw: jobs
	errors   []float64 // buffer of draw
	jobs     []int     // buffer of draw: the jobs of errors
}

// span is an interval of stated work, in steps.
type span struct{ from, to float64 }

func (v *posterior) reset(jobs int) {
	v.stated, v.finished, v.listed = make([]float64, jobs), make([]bool, jobs), make([]bool, jobs)
	v.arrived, v.inexact, v.news = 0, false, reader{}
	v.list.clear()
}

// follow reads the true state.
func (v *posterior) follow(s *State) {
	for ; v.arrived < s.Arrived; v.arrived++ {
		v.stated[v.arrived] = s.Workload.Jobs[v.arrived].Work
	}
	v.fresh, v.learnt = v.fresh[:0], v.learnt[:0]
	before := v.inexact // then all jobs that have run since are listed
	if jobs, ok := v.news.jobs(s); ok {
		for _, job := range jobs {
			v.finish(s, job)
		}
	} else {
		for job := range s.Arrived {
			v.finish(s, job)
		}
	}
	if !v.inexact {
		return
	}
	if !before {
		for job, finished := range v.finished {
			if finished {
				v.add(job)
			}
		}
	}
	for i := range s.Running {
		v.add(s.Running[i].Job)
	}
	for _, job := range v.fresh {
		x := span{v.stated[job], v.stated[job]}
		for _, near := range v.surround(item{v.stated[job], job}) {
			x.from, x.to = min(x.from, v.stated[near]), max(x.to, v.stated[near])
		}
		v.learnt = append(v.learnt, x)
	}
}

// learns reports whether a job with a similar stated work has finished in the last call of follow.
func (v *posterior) learns(job int) bool {
	return slices.ContainsFunc(v.learnt, func(x span) bool { return x.from <= v.stated[job] && v.stated[job] <= x.to })
}

// finish records a job if it has finished.
func (v *posterior) finish(s *State, job int) {
	if job < s.Arrived && s.Remaining[job] == 0 && !v.finished[job] {
		v.finished[job], v.fresh = true, append(v.fresh, job)
		v.inexact = v.inexact || s.Workload.Jobs[job].Work != v.stated[job]
	}
}

// add lists a job that has computed.
func (v *posterior) add(job int) {
	if !v.listed[job] {
		v.listed[job] = true
		v.list.insert(item{v.stated[job], job})
	}
}

// computed returns the steps that a job has computed in the true state.
func (v *posterior) computed(s *State, job int) float64 {
	return s.Workload.Jobs[job].Work - s.Remaining[job]
}

// draw returns the work of a job in steps: the true work of a finished job, otherwise a draw that is larger than least.
// least is at least the result of computed. If it is larger than the true work of a finished job, the result is a draw,
// too. Calls with the same number sample use the same random numbers.
//
// The draw is the error of one of the jobs with the most similar stated work. If that job has not finished, the draw is
// repeated among the jobs with larger errors (the redistribution to the right of Efron, The two sample problem with
// censored data, 1967). If there is no such job, the limit doubles, as the estimate of a job that exceeds it. However,
// if only the simulated job has done least, and the true job has done less, the result is least: the job ends.
func (v *posterior) draw(s *State, job int, least float64, sample uint64) float64 {
	stated := v.stated[job]
	if work := s.Workload.Jobs[job].Work; !v.inexact || v.finished[job] && least <= work {
		return work
	}
	v.surround(item{stated, job})
	random := rand.New(rand.NewPCG(sample, uint64(job)))
	for limit := least / stated; ; {
		v.errors, v.jobs = v.errors[:0], v.jobs[:0]
		for _, near := range v.near {
			if e := v.computed(s, near) / v.stated[near]; e > limit {
				v.errors, v.jobs = append(v.errors, e), append(v.jobs, near)
			}
		}
		switch {
		case len(v.errors) > 0:
		case limit == least/stated && least > v.computed(s, job):
			return least
		default:
			return stated * max(1, 2*limit)
		}
		i := random.IntN(len(v.errors))
		if limit = v.errors[i]; v.finished[v.jobs[i]] {
			return stated * limit
		}
	}
}

// surround sets near to the listed jobs with the most similar stated work, and returns near.
func (v *posterior) surround(x item) []int {
	v.near = v.near[:0]
	after := v.list.from(x)
	before := after
	for range neighbours {
		if y, ok := after.get(); ok {
			v.near = append(v.near, y.id)
			after.next()
		}
		before.prev()
		if y, ok := before.get(); ok {
			v.near = append(v.near, y.id)
		}
	}
	return v.near
}
