package scheduler

import "fmt"

// static assigns one type of GPU to each kind of job. The jobs of a type start in the order of arrival. The first job
// that does not fit blocks the other jobs of its type.
//
// The policy chooses the types once, from the whole workload, as an administrator chooses them from the usual load. It
// assigns types to kinds in the order of their total GPU time, the longest first. A kind gets the type with which the
// load of the most loaded type, in GPU time per GPU, is smallest. If the type of its kind cannot hold a job, the job
// waits for the type on which it is fastest.
type static struct {
	placer
	typ     []int  // by job; -1: several types
	blocked []bool // by type
}

func (p *static) Name() string { return "static" }

func (p *static) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.blocked = make([]bool, len(c.Types))
	byKind := assign(c, w, s)
	p.typ = make([]int, len(w.Jobs))
	empty := c.vacant()
	for i := range w.Jobs {
		j := &w.Jobs[i]
		p.typ[i] = -1
		best := 0.0
		for t := range c.Types {
			speed := empty.speed(j, w, s, t)
			if speed == 0 {
				continue
			}
			if t == byKind[j.Kind] {
				p.typ[i] = t
				break
			}
			if speed > best {
				best, p.typ[i] = speed, t
			}
		}
	}
	return nil
}

// assign chooses a type for each kind.
func assign(c *Cluster, w *Workload, s Speeds) []int {
	gpus := make([]float64, len(c.Types))
	for _, g := range c.GPUs {
		gpus[g.Type]++
	}
	// cost[kind][t]: GPU seconds of all jobs of the kind on type t; 0 where a job of the kind does not run
	cost := make([][]float64, len(w.Kinds))
	runs := make([][]bool, len(w.Kinds))
	for k := range w.Kinds {
		cost[k], runs[k] = make([]float64, len(c.Types)), make([]bool, len(c.Types))
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		for t := range c.Types {
			if v := wholeSpeed(j, s, t); v > 0 && float64(j.GPUs) <= gpus[t] {
				cost[j.Kind][t] += j.Work / v * float64(j.GPUs)
				runs[j.Kind][t] = true
			}
		}
	}
	longest := func(k int) (most float64) {
		for t := range cost[k] {
			most = max(most, cost[k][t])
		}
		return most
	}
	order := make([]int, len(w.Kinds))
	for k := range order {
		order[k] = k
		for i := k; i > 0 && longest(order[i-1]) < longest(order[i]); i-- {
			order[i-1], order[i] = order[i], order[i-1]
		}
	}
	load, chosen := make([]float64, len(c.Types)), make([]int, len(w.Kinds))
	for _, k := range order {
		chosen[k] = -1
		least := 0.0
		for t := range c.Types {
			if !runs[k][t] {
				continue
			}
			if v := load[t] + cost[k][t]/gpus[t]; chosen[k] < 0 || v < least {
				chosen[k], least = t, v
			}
		}
		if chosen[k] >= 0 {
			load[chosen[k]] = least
		}
	}
	return chosen
}

func (p *static) Decide(s *State) Action {
	left := p.count(s)
	clear(p.blocked)
	for _, job := range s.Queue {
		if left == 0 {
			break
		}
		t := p.typ[job]
		if t < 0 {
			if gpus, _, ok := p.any(s, job); ok {
				return p.start(s, job, gpus)
			}
			continue
		}
		if p.blocked[t] {
			continue
		}
		if gpus, _, ok := p.place(s, job, t); ok {
			return p.start(s, job, gpus)
		}
		p.blocked[t] = true
		left -= p.free[t]
	}
	return Action{}
}

// Waits returns the reason why a job of the queue waits; "" if a GPU of its type is available.
func (p *static) Waits(s *State, job int) string {
	t := p.typ[job]
	if t < 0 {
		return ""
	}
	have := 0
	for g, up := range s.Up {
		if up && s.Cluster.GPUs[g].Type == t {
			have++
		}
	}
	if n := s.Workload.Jobs[job].GPUs; have >= n {
		return ""
	}
	return fmt.Sprintf("policy static assigned its kind %q to type %q, which has %s left",
		s.Workload.Kinds[s.Workload.Jobs[job].Kind].Name, s.Cluster.Types[t].Name, gpus(have))
}

func (p *static) start(s *State, job int, gpus []int) Action {
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = p.why(s, job, gpus, fmt.Sprintf("%s is assigned to %s, and no earlier job waits for this type",
			s.Workload.Kinds[s.Workload.Jobs[job].Kind].Name, s.types(gpus)))
	}
	return a
}
