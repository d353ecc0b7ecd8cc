package scheduler

import "fmt"

// srpt starts the job with the shortest remaining processing time on the free GPUs on which it is fastest. If there are
// no such GPUs, it stops running jobs with a longer remaining time. It counts the cost of a stop: the time in which the
// stopped job writes its checkpoint and loads it again.
//
// With one machine and stops without cost, this order has the least mean completion time (Schrage, A Proof of the
// Optimality of the Shortest Remaining Processing Time Discipline, 1968). Large gangs may wait forever.
type srpt struct {
	preemptor
	order   waiting // shortest first
	seconds []float64
	// by job: steps/s on its fastest type; for a job that needs several types, as if all GPUs were of the slowest type
	rates []float64
}

func (p *srpt) Name() string { return "srpt" }

func (p *srpt) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.order.reset(len(w.Jobs), len(p.shapes.first))
	p.seconds, p.rates = make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if p.rates[i] = fastestSpeed(c, j, s); p.mixed[i] {
			p.rates[i] = float64(j.GPUs) * slowestSpeed(c, j, s)
		}
	}
	return nil
}

func (p *srpt) Decide(s *State) Action {
	if v, ok := p.stop(s); ok {
		a := Action{Verb: Stop, Job: v}
		if p.explain {
			a.Reason = fmt.Sprintf("job %q has a shorter remaining time, %s, and no free GPUs",
				s.Workload.Jobs[p.job].Name, seconds(p.seconds[p.job]))
		}
		return a
	}
	first, view := p.settle(s)
	if first >= 0 {
		return p.start(s, first, p.gpus, "the jobs on its GPUs need longer, so they were stopped")
	}
	p.order.sync(s, func(job int) (list int, key float64) {
		p.seconds[job] = p.load(s, job) + s.Remaining[job]/p.rates[job]
		return p.shapes.of[job], p.seconds[job]
	})
	p.begin()
	nobody := false // true: no running job yields to this job or to a longer one
	for p.order.merge(); p.order.more(); {
		shape := p.shapes.of[p.order.heads[0].id]
		if p.waits[shape] && (nobody || p.stays[shape]) {
			p.order.skip()
			continue
		}
		q := p.order.next()
		if q == p.job {
			continue
		}
		if !p.waits[shape] {
			p.countOf(view, p.indexOf(view))
			if gpus, _, ok := p.fastestOf(view, p.indexOf(view), q); ok {
				return p.start(s, q, gpus, "the job has the shortest remaining time of the jobs that fit")
			}
			p.waits[shape] = true
		}
		if nobody || p.stays[shape] {
			continue
		}
		longer := func(r *Running) bool {
			kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
			// Both times are those on the fastest type, so that no two jobs can stop each other.
			return s.Steps(r) > p.rates[r.Job]*(p.seconds[q]+kind.Save+kind.Load)
		}
		switch p.preempt(s, q, longer) {
		case stopSome:
			return p.Decide(s)
		case stopNone, stopTaken:
			nobody = true
		case stopFew: // fewer jobs yield to a longer job
			p.stays[shape] = true
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
