package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// allox assigns a type of GPU to each waiting job, and an order to the jobs of each type. The sum of the completion
// times is minimal (Le et al., AlloX: Compute Allocation in Hybrid Clusters, EuroSys 2020). On one machine, the k-th
// job from the end adds k times its running time to the sum: its own completion time, and those of k-1 later jobs. The
// best order on all machines is therefore the solution of an assignment problem.
//
// AlloX assumes jobs of one GPU. Here, a job of n GPUs on a type with C GPUs delays each later job by n/C of its
// running time. The first job waits for the mean remaining time of the GPUs. Each decision computes a new assignment of
// the [alloxDepth] shortest jobs; longer jobs wait. Of each type, the first job that fits starts. The policy never
// stops a job, and jobs never share a GPU.
type allox struct {
	placer
	order  []ranked // jobs of the assignment
	places [][]int  // by type: jobs, the first one last
	solver assignment
	busy   []float64 // by type: seconds
	size   []float64 // by type: GPUs that are available
	run    []float64 // by job of the assignment and type: seconds on the GPUs; +Inf if they are too few
	delay  []float64 // by job of the assignment and type: seconds for a later job
	rates  []float64 // by job and type: steps/s on GPUs of an empty cluster; 0 if it does not run there
}

// ranked is a job with its key: the least remaining GPU time, seconds.
type ranked struct {
	key float64
	job int
}

// before orders jobs by their keys; ties go to the earlier job.
func (a ranked) before(b ranked) bool { return a.key < b.key || a.key == b.key && a.job < b.job }

// alloxDepth is the number of jobs in an assignment. The time to solve it grows with the third power.
const alloxDepth = 32

func (p *allox) Name() string { return "allox" }

func (p *allox) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	types := len(c.Types)
	p.places, p.busy, p.size = make([][]int, types), make([]float64, types), make([]float64, types)
	p.rates = make([]float64, len(w.Jobs)*types)
	empty := c.vacant()
	for i := range w.Jobs {
		for t := range types {
			p.rates[i*types+t] = empty.speed(&w.Jobs[i], w, s, t)
		}
	}
	return nil
}

func (p *allox) Decide(s *State) Action {
	if p.count(s) == 0 || len(s.Queue) == 0 {
		return Action{}
	}
	p.measure(s)
	p.rank(s)
	p.assign(s)
	for t := range p.places {
		for i := len(p.places[t]) - 1; i >= 0; i-- {
			job := p.places[t][i]
			gpus, _, ok := p.place(s, job, t)
			if !ok {
				continue
			}
			a := Action{Verb: Start, Job: job, GPUs: gpus}
			if p.explain {
				a.Reason = fmt.Sprintf("in the order with the least sum of completion times, it is job %d of %d on its type; it starts on %s",
					len(p.places[t])-i, len(p.places[t]), s.types(gpus))
			}
			return a
		}
	}
	for _, job := range s.Queue { // jobs that need several types are not in the assignment
		if p.mixed(job) {
			if gpus, _, ok := p.any(s, job); ok {
				a := Action{Verb: Start, Job: job, GPUs: gpus}
				if p.explain {
					a.Reason = p.why(s, job, gpus, "")
				}
				return a
			}
		}
	}
	return Action{}
}

// measure counts the available GPUs of each type, and sums the remaining times of the jobs on these GPUs.
func (p *allox) measure(s *State) {
	clear(p.busy)
	clear(p.size)
	for g, up := range s.Up {
		if up {
			p.size[s.Cluster.GPUs[g].Type]++
		}
	}
	for i := range s.Running {
		r := &s.Running[i]
		left := s.Left(r)
		if math.IsInf(left, 1) { // only if its speed is nearly 0
			continue
		}
		for _, g := range r.GPUs {
			p.busy[s.Cluster.GPUs[g].Type] += left
		}
	}
}

// rank chooses the jobs of the assignment: those with the least remaining GPU time on their fastest type that has
// enough available GPUs. A longer job waits until it is among these jobs, even if GPUs are free.
func (p *allox) rank(s *State) {
	p.order = p.order[:0]
	for _, q := range s.Queue {
		least := math.Inf(1)
		for t := range s.Cluster.Types {
			least = min(least, p.seconds(s, q, t))
		}
		if !math.IsInf(least, 1) {
			p.order = append(p.order, ranked{least * float64(s.Workload.Jobs[q].GPUs), q})
		}
	}
	slices.SortFunc(p.order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.job, b.job))
	})
	if len(p.order) > alloxDepth {
		p.order = p.order[:alloxDepth]
	}
}

// seconds returns the running time of a job on GPUs of a type. It is +Inf if the job does not run there, or if too few
// of these GPUs are available.
func (p *allox) seconds(s *State, job, typ int) float64 {
	if float64(s.Workload.Jobs[job].GPUs) > p.size[typ] {
		return math.Inf(1)
	}
	return s.Remaining[job] / p.rates[job*len(p.places)+typ]
}

// assign fills p.places.
func (p *allox) assign(s *State) {
	jobs, types := len(p.order), len(p.places)
	p.run, p.delay = append(p.run[:0], make([]float64, jobs*types)...),
		append(p.delay[:0], make([]float64, jobs*types)...)
	for i, v := range p.order {
		n := float64(s.Workload.Jobs[v.job].GPUs)
		for t := range types {
			p.run[i*types+t] = math.Inf(1)
			if run := p.seconds(s, v.job, t); !math.IsInf(run, 1) {
				p.run[i*types+t], p.delay[i*types+t] = p.busy[t]/p.size[t]+run, run*n/p.size[t]
			}
		}
	}
	cost := func(i, column int) float64 {
		at, later := i*types+column/jobs, column%jobs
		if math.IsInf(p.run[at], 1) {
			return p.run[at]
		}
		return p.run[at] + float64(later)*p.delay[at]
	}
	for t := range p.places {
		p.places[t] = p.places[t][:0]
	}
	for column, row := range p.solver.solve(jobs, jobs*types, cost) { // the last job of each type first
		if row > 0 {
			p.places[column/jobs] = append(p.places[column/jobs], p.order[row-1].job)
		}
	}
}
