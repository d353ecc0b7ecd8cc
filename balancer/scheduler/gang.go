package scheduler

import (
	"fmt"
	"math"
)

// gangDepth is the number of jobs in a plan that leaves no GPU free. Jobs further back in the queue seldom find free
// GPUs, and each job of the plan costs time.
const gangDepth = 64

func (p *gang) Name() string { return "gang" }

func (p *gang) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.placer.reset(c, w, s)
	p.ends.reset(c, w, &p.shapes)
	p.ends.kin = p.shapes.kin()
	p.ends.listGPUs(c)
	p.planner.reset(c, &p.placer.index, &p.ends)
	p.queue.reset(&p.shapes, true)
	p.prices, p.sets = map[gangKey]float64{}, map[gangKey][]priced{}
	p.counts, p.have, p.mix = make([]int, len(c.Types)), make([]int, len(c.Types)), make([]int, len(c.Types))
	p.idles = make([]int, len(c.Types))
	classes := p.shapes.classes
	p.keys, p.shares, p.latest = make([]float64, len(classes)), make([]sharing, len(classes)),
		make([]gangSets, len(classes))
	for i, k := range classes {
		best := 0.0
		for t := range c.Types {
			best = max(best, s.Alone(k.kind, t, k.gpus, false), s.Alone(k.kind, t, k.gpus, true))
		}
		p.keys[i] = float64(k.gpus) / best // +Inf if it runs on mixed sets only: planned last
	}
	p.resetOutlooks()
	return nil
}

func (p *gang) Decide(s *State) Action {
	free := p.count(s)
	p.ends.sync(s, &p.shapes)
	p.queue.sync(s, func(job int) (float64, bool) { return p.keys[p.shapes.classOf(job)] * s.Remaining[job], true })
	if len(s.Queue) == 0 {
		if free == 0 || p.keep {
			return Action{}
		}
		return p.move(s)
	}
	p.begin(s)
	if p.allWait(s) {
		return Action{}
	}
	end := s.Now              // of the plan, seconds
	at := p.queue.all.first() // the least remaining GPU time first
	next, more := at.get()
	full := false // no GPU is left, and a job may still start
	for n := 0; more && (n < gangDepth || n < len(s.Up) && p.left > 0 && !p.short); n++ {
		if p.left <= 0 && !full && !p.someIdle() {
			if full = p.startsInUse(s, at, gangDepth-n); !full {
				return Action{}
			}
		}
		job := next.id
		at.next()
		next, more = at.get()
		best := p.choose(s, job)
		if best.start > s.Now && !(math.IsInf(best.start, 1) && p.mixed(job)) {
			if best.typ >= 0 {
				// If one machine has n idle GPUs, and the job runs only over several, nothing is reserved. Jobs behind
				// it may take all these GPUs, so it may start only when they end. A reservation of some of them would
				// leave GPUs idle until another machine has one.
				if l, n := &p.lanes[best.typ], s.Workload.Jobs[job].GPUs; n > l.idle() {
					l.reserve(n, best.finish)
				}
				end = max(end, best.finish)
			}
			continue
		}
		if a, ok := p.start(s, job, best); ok {
			return a
		}
	}
	if more && p.left > 0 && !p.short {
		return p.fill(s, end)
	}
	return Action{}
}

// startsInUse reports whether one of the next n jobs may start although the plan leaves no GPU free: it shares GPUs, or
// it needs GPUs of several types, for which the plan does not reserve.
func (p *gang) startsInUse(s *State, at cursor, n int) bool {
	for ; n > 0; n-- {
		x, ok := at.get()
		if !ok {
			return false
		}
		if class := p.shapes.classOf(x.id); p.shapes.classes[class].mixed || p.canShare(s, class) {
			return true
		}
		at.next()
	}
	return false
}

// fill starts the job with the least remaining GPU time on GPUs that the plan leaves free, if the job ends there before
// the end of the plan. Each job of the plan finishes earlier if it waits for faster GPUs. But jobs behind the plan keep
// the faster GPUs busy after the plan, and until then the other GPUs would be idle.
func (p *gang) fill(s *State, end float64) Action {
	p.idle(p.free)
	p.asked.begin()
	left := end - s.Now + margin(end, s.Now)
	most := func(class int) float64 {
		rate := p.fastestRate(class)
		if rate == 0 {
			return -1
		}
		return left * rate * (1 + endPrecision)
	}
	job := p.queue.search(math.Inf(1), most, func(job int) bool {
		if p.mixed(job) { // fastest would give it GPUs that jobs of the plan have reserved
			return false
		}
		speed, ok := p.ask(s, &p.placer.index, &p.asked, job)
		return ok && !(s.Now+s.Remaining[job]/speed > end)
	})
	if job < 0 {
		return Action{}
	}
	gpus, speed, _ := p.fastest(s, job)
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		verb := "are"
		if len(gpus) == 1 {
			verb = "is"
		}
		a.Reason = fmt.Sprintf("more jobs wait than the plan has, and %s %s idle: predicted %.4g steps/s, end in %s",
			s.types(gpus), verb, speed, seconds(s.Remaining[job]/speed))
	}
	return a
}

// choose finds the earliest finish of a job in the plan.
func (p *gang) choose(s *State, job int) plan {
	class := p.shapes.classOf(job)
	k := &p.shapes.classes[class]
	steps := s.Remaining[job]
	best := plan{finish: math.Inf(1), start: math.Inf(1), typ: -1, shared: -1}
	for t := range p.lanes {
		speed, slower := p.shapes.speeds(class, t)
		if speed == 0 && slower == 0 {
			continue
		}
		start, spread := 0.0, true
		if speed > 0 {
			start, spread = p.lanes[t].earliest(k.gpus, k.size)
		} else {
			start = p.lanes[t].apart(k.gpus)
		}
		if spread {
			speed = slower
		}
		if math.IsInf(start, 1) || speed == 0 {
			continue
		}
		if finish := start + steps/speed; finish < best.finish {
			best = plan{finish, start, t, speed, -1}
		}
	}
	if k.gpus > 1 && len(p.lanes) > 1 && len(p.lanes) <= maxMixedTypes {
		p.idle(p.idles)
		p.mixtures(s, job, class, p.idles, &best)
	}
	if p.canShare(s, class) {
		p.share(s, job, k.size, &best)
	}
	return best
}

// start finds the GPUs of a choice. If the machines lack CPU cores or memory for them at the predicted speed, it takes
// the fastest GPUs that have both; ok is false if there are none.
func (p *gang) start(s *State, job int, best plan) (a Action, ok bool) {
	var gpus []int
	if best.shared >= 0 {
		gpus, ok = s.Running[best.shared].GPUs, true
	} else if best.typ >= 0 {
		var speed float64
		gpus, speed, ok = p.place(s, job, best.typ)
		ok = ok && speed >= best.speed // else the job would span machines, as one lacks CPU cores or memory
	} else if !math.IsInf(best.start, 1) {
		gpus = p.collect(s, job)
		_, why := s.Fit(job, gpus)
		ok = why == Fits
	}
	if !ok {
		if gpus, best.speed, ok = p.fastest(s, job); !ok {
			return Action{}, false
		}
		best.finish = s.Now + s.Remaining[job]/best.speed
	}
	p.best = append(p.best[:0], gpus...)
	gpus = p.best
	a = Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		with := ""
		if best.shared >= 0 {
			with = fmt.Sprintf(" together with job %d", s.Running[best.shared].Job)
		}
		a.Reason = fmt.Sprintf("it finishes first on %s%s: predicted %.4g steps/s, end in %s", s.types(gpus), with,
			best.speed, seconds(best.finish-s.Now))
	}
	return a, true
}
