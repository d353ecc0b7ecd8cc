package scheduler

import (
	"fmt"
	"math"
	"slices"
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
// earlier than on slow GPUs that are free. Each decision makes a new plan. If no job waits and GPUs are free, the
// policy moves jobs to faster GPUs.
//
// A plan has up to gangDepth jobs. If it then leaves GPUs free, it has up to as many jobs as the cluster has GPUs. If
// still more jobs wait, GPUs that the plan leaves free get a job that ends there before the end of the plan
// ([gang.fill]).
type gang struct {
	placer
	keep   bool                // never move a job
	short  bool                // plan for at most gangDepth jobs
	prices map[gangKey]float64 // of mixed sets; a cache

	until  []float64 // by GPU: seconds when it is free in the plan; +Inf if it is not available
	left   int       // GPUs that are free now and that no job of the plan has reserved
	order  []ranked  // jobs of the queue that plan or fill has not tried yet: a heap, the next job first
	keys   []float64 // by job: remaining GPU time on its fastest type, seconds
	counts []int     // by type
	have   []int     // by type: GPUs that are free now in the plan
	mix    []int     // by type: best mixed set

	ofType [][]int   // by type: its GPUs
	groups [][][]int // by type: its GPUs on each machine that has any
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

// maxMixedTypes is the number of types of GPUs in a cluster up to which the policy considers mixed sets. The number of
// such sets grows exponentially with the number of types.
const maxMixedTypes = 8

type gangKey struct {
	kind   int
	counts [maxMixedTypes]uint16
}

func (p *gang) Name() string { return "gang" }

func (p *gang) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.prices = map[gangKey]float64{}
	p.until = make([]float64, len(c.GPUs))
	p.counts, p.have, p.mix = make([]int, len(c.Types)), make([]int, len(c.Types)), make([]int, len(c.Types))
	p.group(c)
	p.keys = make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		best := 0.0
		for t := range c.Types {
			best = max(best, s.Alone(j.Kind, t, j.GPUs, false), s.Alone(j.Kind, t, j.GPUs, true))
		}
		p.keys[i] = float64(j.GPUs) / best // +Inf if it runs on mixed sets only: planned last
	}
	return nil
}

// group lists the GPUs of each type.
func (p *gang) group(c *Cluster) {
	p.ofType, p.groups = make([][]int, len(c.Types)), make([][][]int, len(c.Types))
	for g := range c.GPUs {
		t := c.GPUs[g].Type
		p.ofType[t] = append(p.ofType[t], g)
	}
	for m := range c.Machines {
		for t := range c.Types {
			var list []int
			for _, g := range c.Machines[m].GPUs {
				if c.GPUs[g].Type == t {
					list = append(list, g)
				}
			}
			if len(list) > 0 {
				p.groups[t] = append(p.groups[t], list)
			}
		}
	}
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
	if len(s.Queue) == 0 {
		if free == 0 || p.keep {
			return Action{}
		}
		return p.move(s)
	}
	p.release(s)
	p.rank(s)
	p.left = free
	end := s.Now // of the plan, seconds
	for n := 0; len(p.order) > 0 && (n < gangDepth || n < len(s.Up) && p.left > 0 && !p.short); n++ {
		job := p.next()
		best := p.choose(s, job)
		if best.start > s.Now && !(p.mixed[job] && math.IsInf(best.start, 1)) {
			if best.typ >= 0 {
				p.reserve(s, best.typ, s.Workload.Jobs[job].GPUs, best.finish)
				end = max(end, best.finish)
			}
			continue
		}
		if a, ok := p.start(s, job, best); ok {
			return a
		}
	}
	if len(p.order) > 0 && p.left > 0 && !p.short {
		return p.fill(s, end)
	}
	return Action{}
}

// fill starts the job with the least remaining GPU time on GPUs that the plan leaves free, if the job ends there before
// the end of the plan. Each job of the plan finishes earlier if it waits for faster GPUs. But jobs behind the plan keep
// the faster GPUs busy after the plan, and until then the other GPUs would be idle.
func (p *gang) fill(s *State, end float64) Action {
	p.idle(s, p.free)
	p.rank(s)
	for len(p.order) > 0 {
		job := p.next()
		if p.mixed[job] { // fastest would give it GPUs that jobs of the plan have reserved
			continue
		}
		gpus, speed, ok := p.fastest(s, job)
		if !ok || s.Now+s.Remaining[job]/speed > end {
			continue
		}
		a := Action{Verb: Start, Job: job, GPUs: gpus}
		if p.explain {
			verb := "are"
			if len(gpus) == 1 {
				verb = "is"
			}
			a.Reason = fmt.Sprintf(
				"more jobs wait than the plan has, and %s %s idle: predicted %.4g steps/s, end in %s",
				s.types(gpus), verb, speed, seconds(s.Remaining[job]/speed))
		}
		return a
	}
	return Action{}
}

// idle counts the GPUs of each type that are free now in the plan.
func (p *gang) idle(s *State, have []int) {
	clear(have)
	for g, at := range p.until {
		if at <= s.Now {
			have[s.Cluster.GPUs[g].Type]++
		}
	}
}

// move stops the job that gains most time on free GPUs of another type, after subtraction of the time for its
// checkpoint. The job then starts there from the queue.
func (p *gang) move(s *State) Action {
	best, gain, typ := -1, 0.0, 0
	for i := range s.Running {
		r := &s.Running[i]
		// A job that started at this time stays. Otherwise it could move between equally good GPUs forever, without
		// time passing.
		if !(r.Speed > 0) || !math.IsInf(r.Leaves, 1) || r.Since >= s.Now {
			continue
		}
		kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		// Do not use r.Speed: if the network limits the job here, it may also limit the job there, and the job would
		// move forever.
		now := r.Remaining / s.Rate(r.Job, r.GPUs, r.Partner)
		for t, free := range p.free {
			if free < len(r.GPUs) {
				continue
			}
			_, speed, ok := s.Place(r.Job, t, p.try[:0])
			if !ok {
				continue
			}
			if v := now - kind.Save - kind.Load - r.Remaining/speed; v > gain && v > gangMove*now {
				best, gain, typ = i, v, t
			}
		}
	}
	if best < 0 {
		return Action{}
	}
	a := Action{Verb: Stop, Job: s.Running[best].Job}
	if p.explain {
		a.Reason = fmt.Sprintf("no job waits, and it finishes %s earlier on free GPUs of type %s", seconds(gain),
			s.Cluster.Types[typ].Name)
	}
	return a
}

// release computes when each GPU becomes free.
func (p *gang) release(s *State) {
	for g, up := range s.Up {
		p.until[g] = math.Inf(1)
		if up && len(s.OnGPU[g]) == 0 {
			p.until[g] = s.Now
		}
	}
	for i := range s.Running {
		r := &s.Running[i]
		end := s.Now + s.Left(r)
		for _, g := range r.GPUs {
			if len(s.OnGPU[g]) == 1 {
				p.until[g] = end
			} else if math.IsInf(p.until[g], 1) || end > p.until[g] {
				p.until[g] = end
			}
		}
	}
}

// ranked is a job with its key: the remaining GPU time on its fastest type, seconds.
type ranked struct {
	key float64
	job int
}

// before orders jobs by their keys; ties go to the earlier job.
func (a ranked) before(b ranked) bool { return a.key < b.key || a.key == b.key && a.job < b.job }

// rank makes a heap of all jobs of the queue.
func (p *gang) rank(s *State) {
	p.order = p.order[:0]
	for _, job := range s.Queue {
		p.order = append(p.order, ranked{p.keys[job] * s.Remaining[job], job})
	}
	for i := len(p.order)/2 - 1; i >= 0; i-- {
		p.sink(i)
	}
}

// next removes the job with the least remaining GPU time from the heap.
func (p *gang) next() int {
	job, last := p.order[0].job, len(p.order)-1
	p.order[0] = p.order[last]
	p.order = p.order[:last]
	p.sink(0)
	return job
}

// sink restores the order of the heap below element i.
func (p *gang) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(p.order) {
			return
		}
		if child+1 < len(p.order) && p.order[child+1].before(p.order[child]) {
			child++
		}
		if !p.order[child].before(p.order[i]) {
			return
		}
		p.order[i], p.order[child] = p.order[child], p.order[i]
		i = child
	}
}

// choose finds the earliest finish of a job in the plan.
func (p *gang) choose(s *State, job int) plan {
	j := &s.Workload.Jobs[job]
	best := plan{finish: math.Inf(1), start: math.Inf(1), typ: -1, shared: -1}
	for t := range s.Cluster.Types {
		if s.Workload.Kinds[j.Kind].GPUMemory > s.Cluster.Types[t].Memory {
			continue
		}
		start, spread := p.earliest(s, t, j.GPUs)
		speed := s.Speeds.Alone(j.Kind, t, j.GPUs, spread)
		if math.IsInf(start, 1) || !(speed > 0) {
			continue
		}
		if finish := start + s.Remaining[job]/speed; finish < best.finish {
			best = plan{finish, start, t, speed, -1}
		}
	}
	if j.GPUs > 1 && len(s.Cluster.Types) > 1 && len(s.Cluster.Types) <= maxMixedTypes {
		p.idle(s, p.have)
		clear(p.counts)
		p.mixtures(s, job, 0, j.GPUs, &best)
	}
	p.share(s, job, &best)
	return best
}

// share predicts the finish time on the GPUs of each running job, and compares it with the best choice.
func (p *gang) share(s *State, job int, best *plan) {
	n := s.Workload.Jobs[job].GPUs
	without, gain := best.finish, 0.0
	for i := range s.Running {
		r := &s.Running[i]
		if len(r.GPUs) != n || r.Partner >= 0 || !(r.Speed > 0) || !math.IsInf(r.Leaves, 1) {
			continue
		}
		// Fit also refuses pairs without a speed, but it takes longer. In a large cluster, most pairs have no speed.
		if !p.pairs(s, job, r) {
			continue
		}
		mine, why := s.Fit(job, r.GPUs)
		if why != Fits {
			continue
		}
		other := s.Rate(r.Job, r.GPUs, job)
		alone := s.Rate(job, r.GPUs, -1)
		if mine/alone+other/r.Speed < gangGain {
			continue
		}
		end, otherEnd := together(s.Remaining[job], mine, alone, r.Remaining, other, r.Speed)
		loss := otherEnd - r.Remaining/r.Speed
		if v := without - (s.Now + end) - gangMargin*loss; v > gain {
			gain = v
			*best = plan{s.Now + end, s.Now, -1, mine, i}
		}
	}
}

// pairs reports whether a job has a speed on the GPUs of a running job, next to that job.
func (p *gang) pairs(s *State, job int, r *Running) bool {
	w := s.Workload
	speed, ok := s.Speeds.Shared(w.Jobs[job].Kind, w.Jobs[r.Job].Kind, s.Cluster.GPUs[r.GPUs[0]].Type, len(r.GPUs))
	return ok && speed > 0
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

// earliest returns the time at which n GPUs of a type are free in the plan, and whether they are on several machines.
// It prefers GPUs of one machine if they are not free later than those of several machines. reserve may still take GPUs
// of other machines: see reserve.
func (p *gang) earliest(s *State, typ, n int) (at float64, spread bool) {
	if n == 1 {
		at = p.nth(p.ofType[typ], 1)
		return at, math.IsInf(at, 1)
	}
	at, spread = math.Inf(1), true
	for _, gpus := range p.groups[typ] {
		if t := p.nth(gpus, n); t < at {
			at, spread = t, false
		}
	}
	if at <= s.Now {
		return at, false
	}
	if t := p.nth(p.ofType[typ], n); t < at {
		return t, true
	}
	return at, spread
}

// nth returns the time at which n GPUs of a list are free, or +Inf if the list has fewer than n.
func (p *gang) nth(gpus []int, n int) float64 {
	if len(gpus) < n {
		return math.Inf(1)
	}
	at := math.Inf(-1)
	for range n {
		// the next later time, with its multiplicity
		next, same := math.Inf(1), 0
		for _, g := range gpus {
			if t := p.until[g]; t > at && t < next {
				next, same = t, 1
			} else if t == next {
				same++
			}
		}
		if n -= same; n <= 0 || math.IsInf(next, 1) {
			return next
		}
		at = next
	}
	return at
}

// mixtures tries all sets of left GPUs among the types from typ on, together with p.counts.
func (p *gang) mixtures(s *State, job, typ, left int, best *plan) {
	if typ == len(p.have)-1 {
		if left > p.have[typ] {
			return
		}
		p.counts[typ] = left
		p.price(s, job, best)
		p.counts[typ] = 0
		return
	}
	for n := range min(left, p.have[typ]) + 1 {
		p.counts[typ] = n
		p.mixtures(s, job, typ+1, left-n, best)
	}
	p.counts[typ] = 0
}

// price predicts the finish time on the mixed set p.counts, and compares it with the best choice.
func (p *gang) price(s *State, job int, best *plan) {
	types := 0
	key := gangKey{kind: s.Workload.Jobs[job].Kind}
	for t, n := range p.counts {
		key.counts[t] = uint16(n)
		if n > 0 {
			types++
		}
	}
	if types < 2 {
		return
	}
	speed, known := p.prices[key]
	if !known {
		if v, ok := s.Speeds.Mixed(key.kind, p.counts, true); ok {
			speed = v
		}
		p.prices[key] = speed
	}
	if speed > 0 {
		if finish := s.Now + s.Remaining[job]/speed; finish < best.finish {
			*best = plan{finish, s.Now, -1, speed, -1}
			copy(p.mix, p.counts)
		}
	}
}

// reserve takes the n GPUs of a type that are free first, on any machines. It may thus reserve GPUs of several machines
// for a job whose finish time was predicted for one machine. The plan is then too optimistic about this job, and may
// leave other GPUs to later jobs than the job will. Each decision makes a new plan, so such an error ends with the next
// event.
func (p *gang) reserve(s *State, typ, n int, until float64) {
	for range n {
		first := -1
		for _, g := range p.ofType[typ] {
			if first < 0 || p.until[g] < p.until[first] {
				first = g
			}
		}
		if first < 0 {
			return
		}
		if p.until[first] <= s.Now {
			p.left--
		}
		p.until[first] = until
	}
}

// start finds the GPUs of a choice. If the machines lack CPU cores or memory for them, it takes the fastest GPUs that
// have both; ok is false if there are none.
func (p *gang) start(s *State, job int, best plan) (a Action, ok bool) {
	var gpus []int
	if best.shared >= 0 {
		gpus, ok = s.Running[best.shared].GPUs, true
	} else if best.typ >= 0 {
		gpus, _, ok = s.Place(job, best.typ, p.best[:0])
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

// collect takes the mixed set p.mix from the free GPUs, machine by machine.
func (p *gang) collect(s *State, job int) []int {
	j := &s.Workload.Jobs[job]
	gpus := p.best[:0]
	copy(p.counts, p.mix)
	for m := range s.Cluster.Machines {
		n := min(Multiples(s.FreeCPUs[m], j.CPUs), Multiples(s.FreeMem[m], j.Memory))
		for _, g := range s.Cluster.Machines[m].GPUs {
			t := s.Cluster.GPUs[g].Type
			if n > 0 && p.counts[t] > 0 && p.until[g] <= s.Now {
				gpus = append(gpus, g)
				p.counts[t]--
				n--
			}
		}
	}
	clear(p.counts)
	slices.Sort(gpus)
	return gpus
}
