package simulate_test

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// twinPreemptor is preemptor.
type twinPreemptor struct {
	twinBackfill
	job     int
	gpus    []int
	victims []int
}

func (p *twinPreemptor) reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) {
	p.twinBackfill.reset(c, w, s)
	p.job, p.victims = -1, nil
}

func (p *twinPreemptor) stop(s *state) (job int, ok bool) {
	for len(p.victims) > 0 {
		last := len(p.victims) - 1
		v := p.victims[last]
		p.victims = p.victims[:last]
		for i := range s.Running {
			if r := &s.Running[i]; r.Job == v && math.IsInf(r.Leaves, 1) {
				return v, true
			}
		}
	}
	return 0, false
}

// settle returns the job that stopped others if its GPUs are free, else -1, and the state for other jobs.
func (p *twinPreemptor) settle(s *state) (start int, view *state) {
	if p.job < 0 {
		return -1, s
	}
	usable, free := slices.Contains(s.Queue, p.job), true
	for _, g := range p.gpus {
		usable, free = usable && s.Up[g], free && len(s.OnGPU[g]) == 0
	}
	if usable && free {
		_, why := s.Fit(p.job, p.gpus)
		usable = why == scheduler.Fits
	}
	start = p.job
	switch {
	case !usable:
		p.job = -1
		return -1, s
	case free:
		p.job = -1
		return start, s
	}
	p.copyOf(s)
	p.leave(s, p.job, p.gpus)
	return -1, &p.rest
}

// preempt chooses jobs to stop for a job, and reports whether there are such jobs.
func (p *twinPreemptor) preempt(s *state, job int, yields func(r *scheduler.Running) bool) bool {
	if p.job >= 0 {
		return false
	}
	p.copyOf(s)
	for i := range s.Running {
		if r := &s.Running[i]; math.IsInf(r.Leaves, 1) && r.Ready <= s.Now && yields(r) {
			p.release(r)
		}
	}
	p.count(&p.later)
	gpus, _, ok := p.fastest(&p.later, job)
	if !ok {
		return false
	}
	p.gpus = gpus
	p.copyOf(s)
	for i := range s.Running {
		if r := &s.Running[i]; slices.ContainsFunc(r.GPUs, func(g int) bool { return slices.Contains(gpus, g) }) {
			p.victims = append(p.victims, r.Job)
			p.release(r)
		}
	}
	if _, why := p.later.Fit(job, gpus); why != scheduler.Fits || len(p.victims) == 0 {
		p.victims = nil
		return false
	}
	p.job = job
	return true
}

// first returns the first job of a list that starts, or stops other jobs; ok is false if there is none.
func (p *twinPreemptor) first(s, view *state, order []int, yields func(job int, r *scheduler.Running) bool,
	again func(*state) action) (a action, ok bool) {
	for _, q := range order {
		if q == p.job {
			continue
		}
		p.count(view)
		if gpus, _, ok := p.fastest(view, q); ok {
			return action{Verb: scheduler.Start, Job: q, GPUs: gpus}, true
		}
		if p.preempt(s, q, func(r *scheduler.Running) bool { return yields(q, r) }) {
			return again(s), true
		}
	}
	return action{}, false
}

// twinSRPT is policy srpt.
type twinSRPT struct {
	twinPreemptor
	rates []float64
}

func (p *twinSRPT) Name() string { return "twin of srpt" }

func (p *twinSRPT) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	p.rates = make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if p.rates[i] = fastestSpeed(c, j, s); p.mixed[i] {
			slowest := math.Inf(1)
			for t := range c.Types {
				if v := s.Alone(j.Kind, t, 1, false); v > 0 {
					slowest = min(slowest, v)
				}
			}
			p.rates[i] = float64(j.GPUs) * slowest
		}
	}
	return nil
}

func (p *twinSRPT) seconds(s *state, job int) float64 {
	return p.load(s, job) + s.Remaining[job]/p.rates[job]
}

func (p *twinSRPT) Decide(s *state) action {
	if v, ok := p.stop(s); ok {
		return action{Verb: scheduler.Stop, Job: v}
	}
	start, view := p.settle(s)
	if start >= 0 {
		return action{Verb: scheduler.Start, Job: start, GPUs: p.gpus}
	}
	order := slices.Clone(s.Queue)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.seconds(s, a), p.seconds(s, b)) })
	a, _ := p.first(s, view, order, func(job int, r *scheduler.Running) bool {
		kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
		return s.Steps(r) > p.rates[r.Job]*(p.seconds(s, job)+kind.Save+kind.Load)
	}, p.Decide)
	return a
}

// twinLAS is policy las.
type twinLAS struct {
	twinPreemptor
	service []float64
	at      float64
}

func (p *twinLAS) Name() string { return "twin of las" }

func (p *twinLAS) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.reset(c, w, s)
	p.service, p.at = make([]float64, len(w.Jobs)), math.Inf(-1)
	return nil
}

func (p *twinLAS) served(job int) bool { return p.service[job] >= 3600*(1-1e-9) }

func (p *twinLAS) Decide(s *state) action {
	next := math.Inf(1)
	for i := range s.Running {
		r := &s.Running[i]
		p.service[r.Job] += float64(len(r.GPUs)) * (s.Now - max(p.at, r.Since))
		if !p.served(r.Job) && len(s.Queue) > 0 {
			next = min(next, s.Now+(3600-p.service[r.Job])/float64(len(r.GPUs)))
		}
	}
	p.at = s.Now
	if v, ok := p.stop(s); ok {
		return action{Verb: scheduler.Stop, Job: v}
	}
	start, view := p.settle(s)
	if start >= 0 {
		return action{Verb: scheduler.Start, Job: start, GPUs: p.gpus}
	}
	var first, second []int
	for _, q := range s.Queue {
		if p.served(q) {
			second = append(second, q)
		} else {
			first = append(first, q)
		}
	}
	yields := func(_ int, r *scheduler.Running) bool { return p.served(r.Job) }
	if a, ok := p.first(s, view, first, yields, p.Decide); ok {
		return a
	}
	never := func(int, *scheduler.Running) bool { return false }
	if a, ok := p.first(s, view, second, never, p.Decide); ok {
		return a
	}
	if math.IsInf(next, 1) || next <= s.Now {
		return action{}
	}
	return action{Until: next}
}
