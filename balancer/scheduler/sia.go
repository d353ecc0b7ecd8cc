package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// Approximate is a Policy that solves optimization problems, and may not reach the optimum.
type Approximate interface {
	Policy
	// Gaps describes the problems since the last Reset.
	Gaps() Gaps
}

// Gaps implements [Approximate].
func (p *sia) Gaps() Gaps { return p.gaps }

func (p *sia) Name() string { return "sia" }

func (p *sia) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	types := len(c.Types)
	p.goodput, p.size = make([]float64, types*len(p.shapes.first)), make([]int, types)
	p.listed, p.stops = make([]int, len(p.shapes.first)), make([]int, len(w.Jobs))
	p.starts, p.stopping, p.moves = p.starts[:0], p.stopping[:0], map[int]int{}
	p.carried = p.carried[:0]
	p.round, p.gaps = math.Inf(-1), Gaps{}
	p.costless = !slices.ContainsFunc(w.Kinds, func(k Kind) bool { return k.Save+k.Load > 0 })
	empty := c.vacant()
	fastest := make([]float64, len(p.shapes.first)) // steps/s
	for shape, job := range p.shapes.first {
		j, g := &w.Jobs[job], p.goodput[shape*types:(shape+1)*types]
		slowest := math.Inf(1)
		for t := range g {
			if g[t] = empty.speed(j, w, s, t); g[t] > 0 {
				slowest, fastest[shape] = min(slowest, g[t]), max(fastest[shape], g[t])
			}
		}
		for t := range g {
			if g[t] > 0 {
				g[t] = g[t] / slowest * float64(j.GPUs)
			}
			if p.mixed(job) { // at most the speed of that many of its fastest GPUs
				fastest[shape] = max(fastest[shape], float64(j.GPUs)*s.Alone(j.Kind, t, 1, false))
			}
		}
	}
	if p.keep {
		return nil // there are no rounds
	}
	for i := range w.Jobs {
		j, speed := &w.Jobs[i], fastest[p.shapes.of[i]]
		if err := tooLong(i, j, speed, siaLongest, siaRound); err != nil {
			return err
		}
	}
	return nil
}

func (p *sia) Decide(s *State) Action {
	if !p.keep && s.Now >= p.round {
		p.begin(s)
	}
	if len(p.stopping) > 0 {
		job := p.stopping[0]
		p.stopping = p.stopping[1:]
		p.stops[job]++
		return Action{Verb: Stop, Job: job, Reason: p.whyStop(s, job)}
	}
	if len(s.Queue) > 0 && p.count(s) > 0 {
		if a := p.start(s); a.Verb == Start {
			return a
		}
		if !leaving(s) {
			if a := p.startMixed(s); a.Verb == Start {
				return a
			}
			if p.refill(s) {
				if a := p.start(s); a.Verb == Start {
					return a
				}
			}
		}
	}
	if p.keep || p.settled(s) || p.costless && p.equal(s) {
		return Action{} // the next event begins a round
	}
	return Action{Until: p.round}
}

// startMixed starts the oldest job that fits on free GPUs of several types, and not on GPUs of one type.
func (p *sia) startMixed(s *State) Action {
	for _, job := range s.Queue {
		if !p.mixed(job) {
			continue
		}
		if gpus, _, ok := p.any(s, job); ok {
			a := Action{Verb: Start, Job: job, GPUs: gpus}
			if p.explain {
				a.Reason = p.why(s, job, gpus, "")
			}
			return a
		}
	}
	return Action{}
}

// settled reports whether no round can change anything before the next event: no job waits, and each running job has
// its fastest type.
func (p *sia) settled(s *State) bool {
	if len(s.Queue) > 0 {
		return false
	}
	for i := range s.Running {
		r := &s.Running[i]
		if !p.mixed(r.Job) {
			g := p.row(r.Job)
			if g[s.Cluster.GPUs[r.GPUs[0]].Type] < slices.Max(g) {
				return false
			}
		}
	}
	return true
}

// equal reports whether jobs and GPUs are the same as at the start of the round.
func (p *sia) equal(s *State) bool {
	p.now = p.snapshot(s, p.now)
	return slices.Equal(p.now, p.last)
}

// leaving reports whether a job saves its checkpoint. Meanwhile, its GPUs and the free ones belong to the jobs of this
// round.
func leaving(s *State) bool {
	return slices.ContainsFunc(s.Running, func(r Running) bool { return !math.IsInf(r.Leaves, 1) })
}

// start starts the first job of starts that waits and fits.
func (p *sia) start(s *State) Action {
	for i, v := range p.starts {
		if !s.queued(v.job) || p.free[v.typ] < s.Workload.Jobs[v.job].GPUs {
			continue
		}
		gpus, _, ok := p.place(s, v.job, v.typ)
		if !ok {
			continue
		}
		p.starts = slices.Delete(p.starts, i, i+1)
		a := Action{Verb: Start, Job: v.job, GPUs: gpus}
		if p.explain {
			a.Reason = fmt.Sprintf(
				"the sum of the values of all jobs is largest if the job gets %s; its normalised goodput is %.2f, its value %.2f",
				s.types(gpus), p.row(v.job)[v.typ], worth(p.row(v.job)[v.typ]))
		}
		return a
	}
	return Action{}
}

// whyStop explains a stop.
func (p *sia) whyStop(s *State, job int) string {
	switch to := p.moves[job]; {
	case !p.explain:
		return ""
	case to >= 0:
		return fmt.Sprintf("the sum of the values of all jobs is largest if the job moves to %d x %s",
			s.Workload.Jobs[job].GPUs, s.Cluster.Types[to].Name)
	}
	return "the sum of the values of all jobs is largest if other jobs get its GPUs"
}
