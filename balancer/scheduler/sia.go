package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Constants of policy sia: the defaults of Sia's published simulator (github.com/siasosp23/artifacts,
// sia-simulator/simulator_config.py and sia.py).
const (
	// siaRound is the length of a round in seconds. At the start of a round, jobs may be stopped and started.
	siaRound = 60
	// siaPower is the fairness power p. With a smaller power, the value grows less with a goodput that is
	// already high.
	siaPower = -0.5
	// siaIncentive is the allocation incentive lambda, the value of any GPUs for a job. It is above 1, the largest
	// possible cost of an allocation that needs no restart, so GPUs are never idle while a job can use them.
	siaIncentive = 1.1
	// siaStay is the additional value of the GPUs that a job has. Of equal allocations, it selects the one with the
	// fewest stops. It is larger than packingRounding and smaller than differences between goodputs.
	siaStay = 1e-6
)

// siaTries is the number of integer programs of a round. With fewer, more rounds stop no job on fragmented clusters.
const siaTries = 8

// siaLongest is the longest job in seconds on its fastest GPUs, 4.7 years: as maxminLongest, for shorter rounds.
const siaLongest = 1.5e8

// sia is the integer program of Sia (Jayaram Subramanya et al., Sia: Heterogeneity-aware, Goodput-optimized ML-cluster
// Scheduling, SOSP 2023) for rigid jobs. In each round, it gives each job at most one configuration, so that the sum of
// the values is largest:
//
//	value = lambda - G^p, with p = -0.5 and lambda = 1.1
//
// G is the normalised goodput: the speed of the job on GPUs of a type, relative to its slowest type, times its number
// of GPUs. For a job that runs, G is multiplied by a restart factor on all types but its own:
//
//	r = (T - N*S) / (T + S)
//
// T is the age of the job in s, and N the number of times that the policy has stopped it. S is the restart penalty in
// s: the times to save and to load a checkpoint. As in Sia, r is 1 until a job has run for S, and a job that loads its
// checkpoint keeps its GPUs. [packing] solves the integer program.
//
// # Which part of Sia this is
//
//   - Jobs are rigid: each has a fixed number of GPUs and a fixed batch. Its goodput is its speed, and its
//     configurations differ only in the type of GPU. Sia's jobs may also change both numbers.
//   - The speeds are those of [Speeds]. Sia estimates them while the job runs.
//   - The constraints of the integer program count GPUs of each type, as in Sia. Machines, CPU cores and memory are not
//     part of it. Sia's placement never splits a job that fits on one machine, and evicts jobs if necessary. This
//     policy places jobs by [State.Place]: on one machine if possible, otherwise on several. It evicts no job. Before
//     it stops a job, it tries all starts of the round on a copy of the state. If a start has no room, it solves the
//     integer program again without it. After siaTries attempts, the round stops no job. The trial places the starts in
//     the order of arrival, so the result is not always optimal.
//   - Between two rounds, Sia changes nothing. This policy gives GPUs that become free to waiting jobs, by the same
//     integer program without the running jobs.
//   - A job that does not fit on GPUs of one type is not part of the program. It runs on free GPUs of any types, and is
//     never stopped.
//
// The policy uses neither the work of a job nor its remaining time, and nothing raises the value of a job that waits.
// Sia starts each job on one GPU. Here, large gangs may wait for as long as small jobs use all GPUs. The reason is that
// 8 jobs of one GPU have a greater sum of values than one job of 8 GPUs.
type sia struct {
	placer
	keep     bool // never stop a running job
	program  packing
	goodput  []float64 // by shape and type: G without the restart factor; 0: does not run there
	groups   []siaGroup
	listed   []int       // by shape: 1 + its group of waiting jobs; 0 between calls
	size     []int       // by type: GPUs of the integer program
	types    []int       // buffer
	starts   []siaStart  // in the order of arrival
	stopping []int       // running jobs that are yet to be stopped
	moves    map[int]int // by job of stopping: the type that it gets instead, or -1
	stops    []int       // by job: times that the policy has stopped it
	round    float64     // seconds: start of the next round
	costless bool        // no restart takes time, so the values do not change with time
	carried  []siaStart  // moves of earlier rounds whose jobs still save their checkpoints
	trial    siaTrial
	last     []int // state at the start of the round, for equal
	now      []int // buffer
	gaps     Gaps
}

// Gaps describes the optimization problems of a run.
type Gaps struct {
	Problems int
	Cut      int     // problems whose search reached its limit
	Largest  float64 // difference of the upper bound and the value of a solution, relative to the bound
}

// Approximate is a Policy that solves optimization problems, and may not reach the optimum.
type Approximate interface {
	Policy
	// Gaps describes the problems since the last Reset.
	Gaps() Gaps
}

// Gaps implements [Approximate].
func (p *sia) Gaps() Gaps { return p.gaps }

// siaGroup is a group of the integer program.
type siaGroup struct {
	jobs []int    // in the order of arrival
	runs *Running // of a running job; nil: the jobs wait
}

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

// snapshot writes the jobs, and the available GPUs of each type. If no restart takes time, these determine the integer
// program.
func (p *sia) snapshot(s *State, to []int) []int {
	to = append(to[:0], make([]int, len(p.size))...)
	for g, up := range s.Up {
		if up {
			to[s.Cluster.GPUs[g].Type]++
		}
	}
	return append(to, s.Arrived, s.Finished)
}

// row returns the goodput of a job by type, without the restart factor.
func (p *sia) row(job int) []float64 {
	types := len(p.size)
	shape := p.shapes.of[job]
	return p.goodput[shape*types : (shape+1)*types]
}

// worth is the value of GPUs with a goodput for a job.
func worth(goodput float64) float64 {
	if !(goodput > 0) {
		return 0
	}
	return siaIncentive - math.Pow(goodput, siaPower)
}

// factor returns the restart factor of a running job.
func (p *sia) factor(s *State, r *Running) float64 {
	kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
	penalty, age := kind.Save+kind.Load, s.Now-s.Workload.Jobs[r.Job].Arrival
	if p.stops[r.Job] == 0 && s.Now-r.Since < penalty || !(age+penalty > 0) {
		return 1
	}
	return max(0, age-float64(p.stops[r.Job])*penalty) / (age + penalty)
}

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

// leaving reports whether a job saves its checkpoint. Meanwhile, its GPUs and the free ones belong to the jobs of this
// round.
func leaving(s *State) bool {
	return slices.ContainsFunc(s.Running, func(r Running) bool { return !math.IsInf(r.Leaves, 1) })
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
