package scheduler

import (
	"fmt"
	"math"
)

// gang makes a plan of starts, which may use sets of GPUs of several types (mixed sets). It takes the jobs of the queue
// in order, the least remaining work first. For each job, it predicts the finish time on
//
//   - each type of GPU, as soon as enough GPUs of the type are free; the remaining times of the jobs that run are known
//
//   - each mixed set of free GPUs, with the speed that the solver of the trainer predicts ([Speeds.Mixed]); only on
//     clusters of up to maxMixedTypes types
//
//   - the GPUs of a running job, shared with this job alone ([Speeds.Shared]), if the waiting job gains more time than
//     the running one loses
//
// and chooses the earliest. If these GPUs are free now, the job starts. Otherwise the plan reserves them for the job,
// and the next job chooses among the GPUs that are left. A job therefore waits for fast GPUs if it then finishes
// earlier than on slow GPUs that are free. Each decision makes a new plan, unless it is certain that the plan starts no
// job ([gang.allWait]). If no job waits and GPUs are free, the policy moves jobs to faster GPUs.
//
// A plan has up to gangDepth jobs. If it then leaves GPUs free, it has up to as many jobs as the cluster has GPUs. If
// still more jobs wait, GPUs that the plan leaves free get a job that ends there before the end of the plan
// ([gang.fill]).
type gang struct {
	placer
	planner
	ends   endIndex
	queue  waiting
	keep   bool                 // never move a job
	short  bool                 // plan for at most gangDepth jobs
	prices map[gangKey]float64  // speeds of mixed sets, steps/s; a cache
	sets   map[gangKey][]priced // mixed sets that can be the best; a cache
	latest []gangSets           // by class: the last entry of sets

	keys     []float64 // by class: GPU time of a step on the fastest type, seconds
	shares   []sharing // by class: whether its jobs can share GPUs
	outlooks []outlook // by type
	starts   []bool    // by class: GPUs that are free now suffice for its jobs; valid for classes with jobs
	counts   []int     // by type
	have     []int     // by type: buffer of setsOf
	idles    []int     // by type: GPUs that are free now in the plan
	mix      []int     // by type: best mixed set
}

// gangDepth is the number of jobs in a plan that leaves no GPU free. Jobs further back in the queue seldom find free
// GPUs, and each job of the plan costs time.
const gangDepth = 64

// gangMargin is the number of seconds that a job must gain for each second that another job loses, before the two share
// GPUs. At 1, the sum of both completion times would be the same as without sharing.
const gangMargin = 2

// gangGain is the least sum of the speeds of two jobs that share GPUs, each relative to its speed without the other. At
// 1, the GPUs compute as much as with one job after the other. In a full cluster, pairs with a small gain are harmful:
// both jobs occupy the GPUs, so a shorter job that arrives cannot share them.
const gangGain = 1.2

// gangMove is the fraction of its remaining time that a job must gain before it moves to other GPUs. With smaller
// values, jobs move more often for a smaller gain; predictions are not exact on real GPUs.
const gangMove = 0.1

// sharing states whether jobs of a class can share GPUs with jobs of any kind on any type.
type sharing uint8

const (
	sharingUnknown sharing = iota
	sharingNever
	sharingSometimes
)

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

// plan is the choice for one job.
type plan struct {
	finish float64 // seconds
	start  float64 // seconds
	typ    int     // of the GPUs, -1: mixed
	speed  float64 // steps/s
	shared int     // index into State.Running of the job whose GPUs it shares, or -1
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

// someIdle reports whether GPUs are free now in the plan.
func (p *gang) someIdle() bool {
	for t := range p.lanes {
		if p.lanes[t].idle() > 0 {
			return true
		}
	}
	return false
}

// idle counts the GPUs of each type that are free now in the plan.
func (p *gang) idle(have []int) {
	for t := range p.lanes {
		have[t] = p.lanes[t].idle()
	}
}

// move stops the job that gains most time on free GPUs of another type, after subtraction of the time for its
// checkpoint. The job then starts there from the queue.
func (p *gang) move(s *State) Action {
	var best candidate
	for _, groups := range p.ends.bySize {
		for _, g := range groups {
			p.leaves(s, g, &best)
		}
	}
	if best.gain == 0 {
		return Action{}
	}
	a := Action{Verb: Stop, Job: s.Running[best.running].Job}
	if p.explain {
		a.Reason = fmt.Sprintf("no job waits, and it finishes %s earlier on free GPUs of type %s", seconds(best.gain),
			s.Cluster.Types[best.typ].Name)
	}
	return a
}

// candidate is a running job that may move. Of two with the same gain, the one that started first is better, then the
// lower type.
type candidate struct {
	gain    float64 // seconds; 0: no candidate
	running int     // index into State.Running
	typ     int
}

func (a candidate) better(b candidate) bool {
	if a.gain != b.gain || a.running != b.running {
		return a.gain > b.gain || a.gain == b.gain && a.running < b.running
	}
	return a.typ < b.typ
}

// leaves compares the jobs of a group with the best candidate. The longer a job still runs, the more it gains. It reads
// further jobs only if the longest ones lack CPU cores or memory, or would have to span machines.
func (p *gang) leaves(s *State, g *group, best *candidate) {
	class, n := p.shapes.class[g.shape], p.shapes.sizes[g.size]
	if !g.known {
		g.known = true
		for t := range s.Cluster.Types {
			packed, spread := p.shapes.speeds(class, t)
			if speed := max(packed, spread); speed*(1-gangMove)*(1+endPrecision) >= g.rate {
				g.targets = append(g.targets, target{t, speed})
			}
		}
	}
	kind := &s.Workload.Kinds[p.shapes.classes[class].kind]
	for _, t := range g.targets {
		at := g.jobs.last()
		x, ok := at.get()
		if p.free[t.typ] < n || g.stays(s, kind, x, t.speed, best) {
			continue
		}
		shape, speed := -1, 0.0
		for top := p.placer.index.top(s, class, t.typ); ok && !g.stays(s, kind, x, top, best); x, ok = at.get() {
			at.prev()
			if of := p.shapes.of[x.id]; of != shape {
				shape, speed = of, p.placer.index.speed(s, of, t.typ)
			}
			if speed == 0 {
				if p.shapes.classes[class].least.covers(p.shapes.need(x.id)) {
					break
				}
				continue
			}
			i := p.ends.find(s, x.id)
			r := &s.Running[i]
			// A job that started at this time stays: it could move between equally good GPUs forever, without time
			// passing. A job that has moved stays until it has computed for as long as it loaded: it could move
			// forever without progress, if the GPUs that it gets are never as fast as predicted.
			if r.Since >= s.Now || s.Now-r.Ready < r.Ready-r.Since {
				continue
			}
			now, v := g.gain(kind, s.Steps(r), speed)
			if c := (candidate{v, i, t.typ}); v > 0 && v > gangMove*now && c.better(*best) {
				*best = c
			}
		}
	}
}

// gain returns the seconds for which a job of the group computes its steps, and how much it gains on GPUs with another
// speed. It does not use the current speed: if the network limits the job here, it may also limit the job there, and
// the job would move forever.
func (g *group) gain(kind *Kind, steps, speed float64) (now, v float64) {
	now = steps / g.rate
	return now, now - kind.Save - kind.Load - steps/speed
}

// stays reports whether it is certain that neither the job of an item nor the jobs before it are better than the best
// candidate on GPUs with a speed.
func (g *group) stays(s *State, kind *Kind, x item, speed float64, best *candidate) bool {
	now, v := g.gain(kind, (x.key-s.Now+margin(x.key, s.Now))*g.speed, speed) // at most
	return v < max(best.gain, gangMove*now)-margin(now, s.Now)
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

// canShare reports whether jobs of a class can share GPUs with some job.
func (p *gang) canShare(s *State, class int) bool {
	is := &p.shares[class]
	if *is != sharingUnknown {
		return *is == sharingSometimes
	}
	*is = sharingNever
	k := &p.shapes.classes[class]
	for other := range s.Workload.Kinds {
		for t := range s.Cluster.Types {
			if speed, ok := s.Speeds.Shared(k.kind, other, t, k.gpus); ok && speed > 0 {
				*is = sharingSometimes
				return true
			}
		}
	}
	return false
}

// share predicts the finish time on the GPUs of running jobs, and compares it with the best choice. In a group, the
// gain is linear up to the job that ends when this job ends, and then constant. The loop reads all jobs of the constant
// part, and all jobs next to which this job does not fit: up to all running jobs for each job of the plan.
func (p *gang) share(s *State, job, size int, best *plan) {
	without, gain := best.finish, 0.0
	for _, g := range p.ends.bySize[size] {
		if g.partner >= 0 || g.typ < 0 {
			continue
		}
		pair := p.pair(s, g, job)
		if !pair.ok {
			continue
		}
		at, step := g.jobs.first(), (*cursor).next
		if pair.rises {
			at, step = g.jobs.last(), (*cursor).prev
		}
		for ; ; step(&at) {
			x, ok := at.get()
			if !ok {
				break
			}
			i := p.ends.find(s, x.id)
			r := &s.Running[i]
			steps := s.Steps(r)
			end, otherEnd := together(s.Remaining[job], pair.mine, pair.alone, steps, pair.other, r.Speed)
			loss := otherEnd - steps/r.Speed
			v := without - (s.Now + end) - gangMargin*loss
			if !math.IsInf(without, 1) && v < gain-margin(without+otherEnd+end, s.Now) {
				break
			}
			if !(v > gain || v == gain && best.shared >= 0 && i < best.shared) {
				continue
			}
			if _, why := s.Fit(job, r.GPUs); why == Fits {
				gain = v
				*best = plan{s.Now + end, s.Now, -1, pair.mine, i}
			}
		}
	}
}

// cannotPair is the pairing of jobs that cannot share GPUs.
var cannotPair pairing

// pair returns the speeds of a job on the GPUs of a job of a group. A group has a cache only if one of its answers is
// positive. Otherwise the caches of all groups would need a time and memory proportional to groups x kinds, also if no
// jobs can share GPUs: the jobs of `schedule advise` each have their own kind.
func (p *gang) pair(s *State, g *group, job int) *pairing {
	w := s.Workload
	kind := w.Jobs[job].Kind
	if g.pairing != nil && g.pairing[kind].known {
		return &g.pairing[kind]
	}
	other := g.jobs.at(0).id
	with := w.Jobs[other].Kind
	speed, ok := s.Speeds.Shared(kind, with, g.typ, w.Jobs[job].GPUs)
	ok = ok && speed > 0 && !(w.Kinds[kind].GPUMemory+w.Kinds[with].GPUMemory > s.Cluster.Types[g.typ].Memory)
	if !ok && g.pairing == nil {
		return &cannotPair
	}
	if g.pairing == nil {
		g.pairing = make([]pairing, len(w.Kinds))
	}
	v := &g.pairing[kind]
	if v.known = true; !ok {
		return v
	}
	// All GPUs that the jobs of the group use give the same speeds.
	gpus := s.Running[p.ends.find(s, other)].GPUs
	v.mine, v.alone, v.other = s.Rate(job, gpus, other), s.Rate(job, gpus, -1), s.Rate(other, gpus, job)
	// A job that does not run alone on these GPUs would have no speed after the end of its partner.
	v.ok = v.mine > 0 && v.alone > 0 && v.other > 0 && !(v.mine/v.alone+v.other/g.speed < gangGain)
	v.rises = (1-v.mine/v.alone)/v.other+gangMargin*(1/v.other-1/g.speed) < 0
	return v
}

// together returns the times in which two jobs end that share GPUs until the first one ends. Work is in steps. Speeds,
// in the pair and alone, are in steps/s.
func together(workA, pairA, aloneA, workB, pairB, aloneB float64) (endA, endB float64) {
	endA, endB = workA/pairA, workB/pairB
	if endA < endB {
		return endA, endA + (workB-pairB*endA)/aloneB
	}
	return endB + (workA-pairA*endB)/aloneA, endB
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

// isIdle reports whether a GPU is free now in the plan.
func (p *gang) isIdle(s *State, g int) bool {
	l := &p.lanes[s.Cluster.GPUs[g].Type]
	if l.free > 0 && p.placer.index.is[l.typ].has(g) {
		return true
	}
	return l.ready > 0 && len(s.OnGPU[g]) > 0 && p.ends.until(s, g) <= s.Now
}
