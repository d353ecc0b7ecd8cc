package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// begin solves the integer program of a round.
func (p *sia) begin(s *State) {
	p.round = s.Now + siaRound
	p.last = p.snapshot(s, p.last)
	copy(p.size, p.last)
	p.collect(s)
	waiting := len(p.groups)
	p.carried = p.carried[:0]
	for i := range s.Running {
		r := &s.Running[i]
		switch {
		case !math.IsInf(r.Leaves, 1): // its GPUs will be free
			if to, ok := p.moves[r.Job]; ok && to >= 0 {
				p.carried = append(p.carried, siaStart{r.Job, to, -1})
			}
		case p.mixed(r.Job) || r.Ready > s.Now: // it keeps its GPUs
			for _, g := range r.GPUs {
				p.size[s.Cluster.GPUs[g].Type]--
			}
		default:
			p.group().runs = r
		}
	}
	p.carried = slices.DeleteFunc(p.carried, func(v siaStart) bool {
		n := s.Workload.Jobs[v.job].GPUs
		if n > p.size[v.typ] {
			return true // GPUs have failed
		}
		p.size[v.typ] -= n
		return false
	})
	p.program.reset(p.size)
	for i := range p.groups {
		if r := p.groups[i].runs; r == nil {
			job := p.groups[i].jobs[0]
			value := p.program.add(len(p.groups[i].jobs), s.Workload.Jobs[job].GPUs)
			for t, g := range p.row(job) {
				value[t] = worth(g)
			}
		} else {
			value, factor, own := p.program.add(1, len(r.GPUs)), p.factor(s, r), s.Cluster.GPUs[r.GPUs[0]].Type
			for t, g := range p.row(r.Job) {
				if value[t] = worth(g * factor); t == own {
					value[t] = worth(g) + siaStay
				}
			}
		}
	}
	for tries, nodes := siaTries, packingNodes; ; tries-- {
		nodes = p.solve(nodes)
		p.plan(s, waiting)
		if len(p.stopping) == 0 || p.room(s) {
			return
		}
		if tries == 1 {
			break
		}
		p.bar(waiting)
	}
	p.starts = slices.DeleteFunc(p.starts, func(v siaStart) bool { return v.group >= waiting })
	for _, job := range p.stopping {
		delete(p.moves, job)
	}
	p.stopping = p.stopping[:0]
}

// plan sets starts, stopping and moves to the solution of the integer program. The first groups are those of waiting
// jobs.
func (p *sia) plan(s *State, waiting int) {
	p.take(waiting)
	p.starts = append(p.starts, p.carried...)
	p.stopping = p.stopping[:0]
	clear(p.moves)
	for _, v := range p.carried {
		p.moves[v.job] = v.typ
	}
	for i := waiting; i < len(p.groups); i++ {
		r, to := p.groups[i].runs, -1
		for t := range p.size {
			if p.program.taken[i*len(p.size)+t] > 0 {
				to = t
			}
		}
		if to == s.Cluster.GPUs[r.GPUs[0]].Type {
			continue
		}
		p.stopping = append(p.stopping, r.Job)
		if p.moves[r.Job] = to; to >= 0 {
			p.starts = append(p.starts, siaStart{r.Job, to, i})
		}
	}
	p.sort()
}

// room reports whether all starts of the integer program have room after the stops.
func (p *sia) room(s *State) bool {
	p.trial.run(s, p.starts, func(job int) bool {
		_, stops := p.moves[job]
		return stops
	})
	for i, v := range p.starts {
		if v.group >= 0 && !p.trial.done[i] {
			return false
		}
	}
	return true
}

// bar removes the starts without room from the integer program. If only some of the jobs of a group have room on a
// type, bar removes the others from the group.
func (p *sia) bar(waiting int) {
	types := len(p.size)
	for i, v := range p.starts {
		if v.group < 0 || p.trial.done[i] {
			continue
		}
		some := false // other jobs of the group have room on this type
		for k, u := range p.starts {
			some = some || u.group == v.group && u.typ == v.typ && p.trial.done[k]
		}
		if some && v.group < waiting {
			p.program.jobs[v.group]--
		} else {
			p.program.value[v.group*types+v.typ] = 0
		}
	}
}

// refill solves the integer program of free GPUs and waiting jobs, each on the types on which it can start now. It
// returns false if no job can start.
func (p *sia) refill(s *State) bool {
	p.collect(s)
	copy(p.size, p.free)
	p.program.reset(p.size)
	some := false
	for i := range p.groups {
		job := p.groups[i].jobs[0]
		j := &s.Workload.Jobs[job]
		value := p.program.add(len(p.groups[i].jobs), j.GPUs)
		for t, g := range p.row(job) {
			if g > 0 && p.free[t] >= j.GPUs && p.index.speed(s, p.shapes.of[job], t) > 0 {
				value[t] = worth(g)
				some = true
			}
		}
	}
	if !some {
		return false
	}
	p.solve(packingNodes)
	p.take(len(p.groups))
	p.sort()
	return len(p.starts) > 0
}

// collect sets groups to the waiting jobs.
func (p *sia) collect(s *State) {
	p.groups = p.groups[:0]
	for _, job := range s.Queue {
		if p.mixed(job) {
			continue
		}
		shape := p.shapes.of[job]
		if p.listed[shape] == 0 {
			p.group()
			p.listed[shape] = len(p.groups)
		}
		g := &p.groups[p.listed[shape]-1]
		g.jobs = append(g.jobs, job)
	}
	for i := range p.groups {
		p.listed[p.shapes.of[p.groups[i].jobs[0]]] = 0
	}
}

// group appends an empty group.
func (p *sia) group() *siaGroup {
	n := len(p.groups)
	if n < cap(p.groups) {
		p.groups = p.groups[:n+1]
	} else {
		p.groups = append(p.groups, siaGroup{})
	}
	g := &p.groups[n]
	g.jobs, g.runs = g.jobs[:0], nil
	return g
}

// solve solves the integer program, and returns the rest of the limit for its search.
func (p *sia) solve(nodes int) (rest int) {
	value, bound := p.program.solve(nodes)
	p.gaps.Problems++
	if value < bound {
		p.gaps.Cut++
		p.gaps.Largest = max(p.gaps.Largest, (bound-value)/bound)
	}
	return max(0, p.program.nodes)
}

// take sets starts to the jobs of the first groups that get GPUs. Within a group, the oldest jobs get GPUs, those with
// the largest value first.
func (p *sia) take(groups int) {
	p.starts = p.starts[:0]
	types := len(p.size)
	for i := range p.groups[:groups] {
		p.types = p.types[:0]
		for t := range types {
			for range p.program.taken[i*types+t] {
				p.types = append(p.types, t)
			}
		}
		slices.SortStableFunc(p.types, func(a, b int) int {
			return cmp.Compare(p.program.value[i*types+b], p.program.value[i*types+a])
		})
		for k, t := range p.types {
			p.starts = append(p.starts, siaStart{p.groups[i].jobs[k], t, i})
		}
	}
}

func (p *sia) sort() {
	slices.SortFunc(p.starts, func(a, b siaStart) int { return cmp.Compare(a.job, b.job) })
}
