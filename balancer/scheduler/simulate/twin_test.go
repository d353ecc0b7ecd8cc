package simulate_test

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// The twins are the policies of package scheduler without data structures: at each decision, they read the whole state.
// TestPoliciesEqualTheirTwins compares the decisions.

type (
	state  = scheduler.State
	action = scheduler.Action
)

// twinPlacer is placer.
type twinPlacer struct {
	mixed []bool
	free  []int
}

func (p *twinPlacer) reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) {
	p.free, p.mixed = make([]int, len(c.Types)), make([]bool, len(w.Jobs))
	for i := range w.Jobs {
		// Without speeds on sets of several types, Holds refuses exactly the jobs that do not fit on GPUs of one type.
		p.mixed[i] = scheduler.Holds(c, w, uniform{s}, i) != nil
	}
}

// uniform has no speeds on sets of several types.
type uniform struct{ scheduler.Speeds }

func (uniform) Mixed(int, []int, bool) (float64, bool) { return 0, false }

func (p *twinPlacer) count(s *state) (total int) {
	clear(p.free)
	for g, up := range s.Up {
		if up && len(s.OnGPU[g]) == 0 {
			p.free[s.Cluster.GPUs[g].Type]++
			total++
		}
	}
	return total
}

func (p *twinPlacer) fastest(s *state, job int) (gpus []int, speed float64, ok bool) {
	for t, free := range p.free {
		if free < s.Workload.Jobs[job].GPUs {
			continue
		}
		if chosen, v, fits := s.Place(job, t, nil); fits && v > speed {
			gpus, speed, ok = chosen, v, true
		}
	}
	if !ok && p.mixed[job] {
		return p.any(s, job)
	}
	return gpus, speed, ok
}

func (p *twinPlacer) any(s *state, job int) (gpus []int, speed float64, ok bool) {
	j := &s.Workload.Jobs[job]
	for m := range s.Cluster.Machines {
		n := min(scheduler.Multiples(s.FreeCPUs[m], j.CPUs), scheduler.Multiples(s.FreeMem[m], j.Memory))
		for _, g := range s.Cluster.Machines[m].GPUs {
			t := s.Cluster.GPUs[g].Type
			if n > 0 && len(gpus) < j.GPUs && s.Up[g] && len(s.OnGPU[g]) == 0 &&
				s.Workload.Kinds[j.Kind].GPUMemory <= s.Cluster.Types[t].Memory &&
				s.Speeds.Alone(j.Kind, t, 1, false) > 0 {
				gpus = append(gpus, g)
				n--
			}
		}
	}
	slices.Sort(gpus)
	speed, why := s.Fit(job, gpus)
	return gpus, speed, why == scheduler.Fits
}

// twinSRF is policy srf.
type twinSRF struct{ twinPlacer }

func (p *twinSRF) Name() string { return "twin of srf" }

func (p *twinSRF) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	return nil
}

func (p *twinSRF) Decide(s *state) action {
	p.count(s)
	a, least := action{}, 0.0
	for _, q := range s.Queue {
		if gpus, speed, ok := p.fastest(s, q); ok {
			if v := s.Remaining[q] / speed; a.Verb == scheduler.Wait || v < least {
				a, least = action{Verb: scheduler.Start, Job: q, GPUs: gpus}, v
			}
		}
	}
	return a
}

// twinRule is policy rule.
type twinRule struct {
	twinPlacer
	ageing float64
}

func (p *twinRule) Name() string { return "twin of rule" }

func (p *twinRule) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	total, n := 0.0, 0
	for i := range w.Jobs {
		if best := fastestSpeed(c, &w.Jobs[i], s); best > 0 {
			total += w.Jobs[i].Work / best
			n++
		}
	}
	if p.ageing = 4.0; n > 0 {
		p.ageing = 4 * (total / float64(n))
	}
	return nil
}

func fastestSpeed(c *scheduler.Cluster, j *scheduler.Job, s scheduler.Speeds) (best float64) {
	for t := range c.Types {
		v := s.Alone(j.Kind, t, j.GPUs, false)
		if !(v > 0) && j.GPUs > 1 { // only over several machines
			v = s.Alone(j.Kind, t, j.GPUs, true)
		}
		best = max(best, v)
	}
	return best
}

func (p *twinRule) Decide(s *state) action {
	if p.count(s) == 0 {
		return action{}
	}
	score := func(q int) float64 {
		j := &s.Workload.Jobs[q]
		return j.Priority + (s.Now-j.Arrival)/p.ageing
	}
	order := slices.Clone(s.Queue)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
	for _, q := range order {
		if gpus, _, ok := p.fastest(s, q); ok {
			return action{Verb: scheduler.Start, Job: q, GPUs: gpus}
		}
		if score(q) >= 2 {
			break
		}
	}
	return action{}
}

// twinBackfill is backfill.
type twinBackfill struct {
	twinPlacer
	later, rest state
	now, left   []int
}

func (p *twinBackfill) reserve(s *state, job int) (begins float64) {
	type ending struct {
		running int
		left    float64
	}
	var ends []ending
	for i := range s.Running {
		if left := s.Left(&s.Running[i]); !math.IsInf(left, 1) {
			ends = append(ends, ending{i, left})
		}
	}
	slices.SortStableFunc(ends, func(a, b ending) int { return cmp.Compare(a.left, b.left) })
	p.copyOf(s)
	l := &p.later
	var reserved []int
	begins = math.Inf(1)
	for i, e := range ends {
		p.release(&s.Running[e.running])
		if i+1 < len(ends) && ends[i+1].left == e.left {
			continue
		}
		if p.count(l) < s.Workload.Jobs[job].GPUs {
			continue
		}
		if gpus, _, ok := p.fastest(l, job); ok {
			reserved, begins = gpus, e.left
			break
		}
	}
	p.leave(s, job, reserved)
	p.count(s)
	p.now = slices.Clone(p.free)
	p.count(&p.rest)
	p.left = slices.Clone(p.free)
	return begins
}

// copyOf sets p.later to the state.
func (p *twinBackfill) copyOf(s *state) {
	l := &p.later
	*l = *s
	l.FreeCPUs, l.FreeMem = slices.Clone(s.FreeCPUs), slices.Clone(s.FreeMem)
	l.OnGPU = make([][]int, len(s.OnGPU))
	for g, on := range s.OnGPU {
		l.OnGPU[g] = slices.Clone(on)
	}
}

// release frees the resources of a running job in p.later.
func (p *twinBackfill) release(r *scheduler.Running) {
	l := &p.later
	for _, g := range r.GPUs {
		l.OnGPU[g] = slices.DeleteFunc(l.OnGPU[g], func(on int) bool { return on == r.Job })
		m := l.Cluster.GPUs[g].Machine
		l.FreeCPUs[m] += l.Workload.Jobs[r.Job].CPUs
		l.FreeMem[m] += l.Workload.Jobs[r.Job].Memory
	}
}

// leave sets p.rest to the state without the resources that are reserved for a job.
func (p *twinBackfill) leave(s *state, job int, reserved []int) {
	j, l, rest := &s.Workload.Jobs[job], &p.later, &p.rest
	*rest = *s
	rest.Up, rest.FreeCPUs, rest.FreeMem = slices.Clone(s.Up), slices.Clone(s.FreeCPUs), slices.Clone(s.FreeMem)
	for _, g := range reserved {
		rest.Up[g] = false
		l.FreeCPUs[s.Cluster.GPUs[g].Machine] -= j.CPUs
		l.FreeMem[s.Cluster.GPUs[g].Machine] -= j.Memory
	}
	for _, g := range reserved {
		m := s.Cluster.GPUs[g].Machine
		rest.FreeCPUs[m], rest.FreeMem[m] = min(rest.FreeCPUs[m], l.FreeCPUs[m]), min(rest.FreeMem[m], l.FreeMem[m])
	}
}

func (p *twinBackfill) around(s *state, job int, begins float64) (gpus []int, ok bool) {
	copy(p.free, p.now)
	gpus, speed, ok := p.fastest(s, job)
	if !ok || p.load(s, job)+s.Remaining[job]/speed <= begins {
		return gpus, ok
	}
	copy(p.free, p.left)
	gpus, _, ok = p.fastest(&p.rest, job)
	return gpus, ok
}

func (p *twinBackfill) load(s *state, job int) float64 {
	if j := &s.Workload.Jobs[job]; s.Remaining[job] < j.Work {
		return s.Workload.Kinds[j.Kind].Load
	}
	return 0
}

// twinEasy is policy easy.
type twinEasy struct{ twinBackfill }

func (p *twinEasy) Name() string { return "twin of easy" }

func (p *twinEasy) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	return nil
}

func (p *twinEasy) Decide(s *state) action {
	if len(s.Queue) == 0 || p.count(s) == 0 {
		return action{}
	}
	if gpus, _, ok := p.fastest(s, s.Queue[0]); ok {
		return action{Verb: scheduler.Start, Job: s.Queue[0], GPUs: gpus}
	}
	begins := p.reserve(s, s.Queue[0])
	for _, q := range s.Queue[1:] {
		if gpus, ok := p.around(s, q, begins); ok {
			return action{Verb: scheduler.Start, Job: q, GPUs: gpus}
		}
	}
	return action{}
}

// twinBounded is the policy of scheduler.Limit.
type twinBounded struct {
	twinBackfill
	scheduler.Policy
	bound scheduler.Bound
	due   []float64
}

func (p *twinBounded) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
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

func (p *twinBounded) Decide(s *state) action {
	next := math.Inf(1)
	var overdue []int
	for _, q := range s.Queue {
		if earliest := s.Workload.Jobs[q].Arrival + p.bound.Seconds; s.Now < earliest {
			next = min(next, earliest)
			break
		}
		if s.Now >= p.due[q] {
			overdue = append(overdue, q)
		} else {
			next = min(next, p.due[q])
		}
	}
	a := p.decide(s, overdue)
	if a.Verb == scheduler.Wait && next > s.Now && (a.Until == 0 || next < a.Until) && !math.IsInf(next, 1) {
		a.Until = next
	}
	return a
}

func (p *twinBounded) decide(s *state, overdue []int) action {
	if len(overdue) == 0 {
		return p.Policy.Decide(s)
	}
	slices.SortStableFunc(overdue, func(a, b int) int { return cmp.Compare(p.due[a], p.due[b]) })
	p.count(s)
	if gpus, _, ok := p.fastest(s, overdue[0]); ok {
		return action{Verb: scheduler.Start, Job: overdue[0], GPUs: gpus}
	}
	begins := p.reserve(s, overdue[0])
	for _, q := range overdue[1:] {
		if gpus, ok := p.around(s, q, begins); ok {
			return action{Verb: scheduler.Start, Job: q, GPUs: gpus}
		}
	}
	a := p.Policy.Decide(&p.rest)
	if a.Verb != scheduler.Wait {
		return a
	}
	copy(p.free, p.now)
	shortest := begins
	fill := action{}
	for _, q := range s.Queue {
		if gpus, speed, ok := p.fastest(s, q); ok {
			if v := p.load(s, q) + s.Remaining[q]/speed; v <= shortest {
				shortest, fill = v, action{Verb: scheduler.Start, Job: q, GPUs: gpus}
			}
		}
	}
	if fill.Verb == scheduler.Start {
		return fill
	}
	return a
}
