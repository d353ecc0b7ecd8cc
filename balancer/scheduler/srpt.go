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
	p.order.reset(&p.shapes, false)
	p.seconds, p.rates = make([]float64, len(w.Jobs)), p.topSpeeds(c, w, s)
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
	p.order.sync(s, func(job int) (key float64, listed bool) {
		p.seconds[job] = p.load(s, job) + s.Remaining[job]/p.rates[job]
		return p.seconds[job], true
	})
	p.begin()
	nobody := false // no running job can be stopped for this job or for a longer one
	for p.order.merge(); p.order.more(); {
		if class := p.order.heads[0].class; p.asked.none(class) && (nobody || p.stays.none(class)) {
			p.order.skip()
			continue
		}
		q := p.order.next()
		if q == p.job {
			continue
		}
		if !p.waits(view, q) {
			return p.start(s, q, p.gpusOf(view, q), "the job has the shortest remaining time of the jobs that fit")
		}
		shape := p.shapes.of[q]
		if _, stays := p.stays.of(shape); nobody || stays {
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
			p.stays.refuse(shape)
		case stopFewGPUs:
			p.stays.refuse(shape)
			p.stays.refuseAll(p.shapes.class[shape])
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
