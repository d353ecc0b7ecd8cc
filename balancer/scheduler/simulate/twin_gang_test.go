package simulate_test

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Constants of policy gang.
const (
	gangDepth     = 64
	gangMargin    = 2
	gangGain      = 1.2
	gangMove      = 0.1
	maxMixedTypes = 8
)

// twinGang is policy gang.
type twinGang struct {
	twinPlacer
	short  bool
	until  []float64
	left   int
	keys   []float64
	counts []int
	have   []int
	mix    []int
	ofType [][]int
	groups [][][]int // by type and machine
}

func (p *twinGang) Name() string { return "twin of gang" }

func (p *twinGang) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	types := len(c.Types)
	p.until, p.counts, p.have, p.mix = make([]float64, len(c.GPUs)), make([]int, types), make([]int, types),
		make([]int, types)
	p.ofType, p.groups = make([][]int, types), make([][][]int, types)
	for g := range c.GPUs {
		p.ofType[c.GPUs[g].Type] = append(p.ofType[c.GPUs[g].Type], g)
	}
	for t := range types {
		for m := range c.Machines {
			list := slices.DeleteFunc(slices.Clone(c.Machines[m].GPUs), func(g int) bool { return c.GPUs[g].Type != t })
			p.groups[t] = append(p.groups[t], list)
		}
	}
	p.keys = make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		best := 0.0
		for t := range c.Types {
			best = max(best, s.Alone(j.Kind, t, j.GPUs, false), s.Alone(j.Kind, t, j.GPUs, true))
		}
		p.keys[i] = float64(j.GPUs) / best
	}
	return nil
}

type twinPlan struct {
	finish, start float64
	typ           int
	speed         float64
	shared        int
}

func (p *twinGang) order(s *state) []int {
	order := slices.Clone(s.Queue)
	slices.SortStableFunc(order,
		func(a, b int) int { return cmp.Compare(p.keys[a]*s.Remaining[a], p.keys[b]*s.Remaining[b]) })
	return order
}

func (p *twinGang) Decide(s *state) action {
	free := p.count(s)
	if len(s.Queue) == 0 {
		if free == 0 {
			return action{}
		}
		return p.move(s)
	}
	p.release(s)
	p.left = free
	end := s.Now
	order := p.order(s)
	n := 0
	for ; n < len(order) && (n < gangDepth || n < len(s.Up) && p.left > 0 && !p.short); n++ {
		job := order[n]
		best := p.choose(s, job)
		if best.start > s.Now && !(p.mixed[job] && math.IsInf(best.start, 1)) {
			if best.typ >= 0 {
				if n := s.Workload.Jobs[job].GPUs; n <= p.idleOf(s, best.typ) {
					end = max(end, best.finish) // all on one machine, and the job runs only over several
					continue
				}
				p.reserve(s, best.typ, s.Workload.Jobs[job].GPUs, best.finish)
				end = max(end, best.finish)
			}
			continue
		}
		if a, ok := p.start(s, job, best); ok {
			return a
		}
	}
	if n == len(order) || p.left <= 0 || p.short {
		return action{}
	}
	p.idle(s, p.free)
	for _, job := range order {
		if p.mixed[job] {
			continue
		}
		if gpus, speed, ok := p.fastest(s, job); ok && !(s.Now+s.Remaining[job]/speed > end) {
			return action{Verb: scheduler.Start, Job: job, GPUs: gpus}
		}
	}
	return action{}
}

func (p *twinGang) idle(s *state, have []int) {
	clear(have)
	for g, at := range p.until {
		if at <= s.Now {
			have[s.Cluster.GPUs[g].Type]++
		}
	}
}

func (p *twinGang) move(s *state) action {
	best, gain := -1, 0.0
	for i := range s.Running {
		r := &s.Running[i]
		if !(r.Speed > 0) || !math.IsInf(r.Leaves, 1) || r.Since >= s.Now || s.Now-r.Ready < r.Ready-r.Since {
			continue
		}
		kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		now := r.Remaining / s.Rate(r.Job, r.GPUs, r.Partner)
		for t, free := range p.free {
			if free < len(r.GPUs) {
				continue
			}
			if _, speed, ok := s.Place(r.Job, t, nil); ok {
				if v := now - kind.Save - kind.Load - r.Remaining/speed; v > gain && v > gangMove*now {
					best, gain = i, v
				}
			}
		}
	}
	if best < 0 {
		return action{}
	}
	return action{Verb: scheduler.Stop, Job: s.Running[best].Job}
}

func (p *twinGang) release(s *state) {
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
			if len(s.OnGPU[g]) == 1 || math.IsInf(p.until[g], 1) || end > p.until[g] {
				p.until[g] = end
			}
		}
	}
}

func (p *twinGang) choose(s *state, job int) twinPlan {
	j := &s.Workload.Jobs[job]
	best := twinPlan{finish: math.Inf(1), start: math.Inf(1), typ: -1, shared: -1}
	for t := range s.Cluster.Types {
		if s.Workload.Kinds[j.Kind].GPUMemory > s.Cluster.Types[t].Memory {
			continue
		}
		start, spread := p.earliest(s, t, j.GPUs)
		if j.GPUs > 1 && !(s.Speeds.Alone(j.Kind, t, j.GPUs, false) > 0) { // only over several machines
			start, spread = p.apart(s, t, j.GPUs), true
		}
		speed := s.Speeds.Alone(j.Kind, t, j.GPUs, spread)
		if math.IsInf(start, 1) || !(speed > 0) {
			continue
		}
		if finish := start + s.Remaining[job]/speed; finish < best.finish {
			best = twinPlan{finish, start, t, speed, -1}
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

func (p *twinGang) share(s *state, job int, best *twinPlan) {
	n := s.Workload.Jobs[job].GPUs
	without, gain := best.finish, 0.0
	for i := range s.Running {
		r := &s.Running[i]
		if len(r.GPUs) != n || r.Partner >= 0 || !(r.Speed > 0) || !math.IsInf(r.Leaves, 1) {
			continue
		}
		mine, why := s.Fit(job, r.GPUs)
		if why != scheduler.Fits {
			continue
		}
		other, alone := s.Rate(r.Job, r.GPUs, job), s.Rate(job, r.GPUs, -1)
		if !(alone > 0) || mine/alone+other/r.Speed < gangGain {
			continue
		}
		end, otherEnd := s.Remaining[job]/mine, r.Remaining/other
		if end < otherEnd {
			otherEnd = end + (r.Remaining-other*end)/r.Speed
		} else {
			end = otherEnd + (s.Remaining[job]-mine*otherEnd)/alone
		}
		if v := without - (s.Now + end) - gangMargin*(otherEnd-r.Remaining/r.Speed); v > gain {
			gain = v
			*best = twinPlan{s.Now + end, s.Now, -1, mine, i}
		}
	}
}

func (p *twinGang) earliest(s *state, typ, n int) (at float64, spread bool) {
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

// apart returns the time at which n GPUs of a type, on several machines, are free.
func (p *twinGang) apart(s *state, typ, n int) float64 {
	gpus := slices.Clone(p.ofType[typ])
	slices.SortStableFunc(gpus, func(a, b int) int { return cmp.Compare(p.until[a], p.until[b]) })
	for k := n; k <= len(gpus); k++ {
		if s.Cluster.Spread(gpus[:k]) {
			return p.until[gpus[k-1]]
		}
	}
	return math.Inf(1)
}

// idleOf returns the number of GPUs of a type that are free now.
func (p *twinGang) idleOf(s *state, typ int) (n int) {
	for _, g := range p.ofType[typ] {
		if p.until[g] <= s.Now {
			n++
		}
	}
	return n
}

// nth returns the time at which n GPUs of a list are free.
func (p *twinGang) nth(gpus []int, n int) float64 {
	if len(gpus) < n {
		return math.Inf(1)
	}
	var all []float64
	for _, g := range gpus {
		all = append(all, p.until[g])
	}
	slices.Sort(all)
	return all[n-1]
}

func (p *twinGang) mixtures(s *state, job, typ, left int, best *twinPlan) {
	if typ == len(p.have)-1 {
		if left <= p.have[typ] {
			p.counts[typ] = left
			p.price(s, job, best)
			p.counts[typ] = 0
		}
		return
	}
	for n := range min(left, p.have[typ]) + 1 {
		p.counts[typ] = n
		p.mixtures(s, job, typ+1, left-n, best)
	}
	p.counts[typ] = 0
}

func (p *twinGang) price(s *state, job int, best *twinPlan) {
	types := 0
	for _, n := range p.counts {
		if n > 0 {
			types++
		}
	}
	if types < 2 {
		return
	}
	if speed, ok := s.Speeds.Mixed(s.Workload.Jobs[job].Kind, p.counts, true); ok && speed > 0 {
		if finish := s.Now + s.Remaining[job]/speed; finish < best.finish {
			*best = twinPlan{finish, s.Now, -1, speed, -1}
			copy(p.mix, p.counts)
		}
	}
}

func (p *twinGang) reserve(s *state, typ, n int, until float64) {
	for range n {
		first := p.ofType[typ][0]
		for _, g := range p.ofType[typ] {
			if p.until[g] < p.until[first] {
				first = g
			}
		}
		if p.until[first] <= s.Now {
			p.left--
		}
		p.until[first] = until
	}
}

func (p *twinGang) start(s *state, job int, best twinPlan) (action, bool) {
	var gpus []int
	ok := false
	if best.shared >= 0 {
		gpus, ok = slices.Clone(s.Running[best.shared].GPUs), true
	} else if best.typ >= 0 {
		var speed float64
		gpus, speed, ok = s.Place(job, best.typ, nil)
		ok = ok && speed >= best.speed
	} else if !math.IsInf(best.start, 1) {
		gpus = p.collect(s, job)
		_, why := s.Fit(job, gpus)
		ok = why == scheduler.Fits
	}
	if !ok {
		gpus, _, ok = p.fastest(s, job)
	}
	return action{Verb: scheduler.Start, Job: job, GPUs: gpus}, ok
}

func (p *twinGang) collect(s *state, job int) (gpus []int) {
	j := &s.Workload.Jobs[job]
	left := slices.Clone(p.mix)
	for m := range s.Cluster.Machines {
		n := min(scheduler.Multiples(s.FreeCPUs[m], j.CPUs), scheduler.Multiples(s.FreeMem[m], j.Memory))
		for _, g := range s.Cluster.Machines[m].GPUs {
			if t := s.Cluster.GPUs[g].Type; n > 0 && left[t] > 0 && p.until[g] <= s.Now {
				gpus = append(gpus, g)
				left[t]--
				n--
			}
		}
	}
	slices.Sort(gpus)
	return gpus
}
