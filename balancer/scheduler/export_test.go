package scheduler

import (
	"cmp"
	"slices"
)

// Samples is the number of simulations of policy easy under a policy of [Limit] with uncertain work.
const Samples = samples

// Shadow returns the start of each job in the first simulation of policy easy under a policy of [Limit], in s. It
// returns -1 for the other jobs. No GPU may have failed.
func Shadow(p Policy) []float64 { return ShadowOf(p, 0) }

// ShadowOf is Shadow for one of the simulations.
func ShadowOf(p Policy, sample int) []float64 {
	v := &p.(*bounded).shadow.runs[sample]
	starts := make([]float64, len(v.runs))
	for job := range v.runs {
		if starts[job] = -1; v.runs[job].started {
			starts[job] = v.runs[job].since
		}
	}
	return starts
}

// Ahead returns the longest wait of the jobs with a number of GPUs in the continuations of the simulation of policy
// easy under a policy of [Limit], in s. The longest wait of jobs that have started before is contained.
func Ahead(p Policy, gpus int) float64 {
	v := p.(*bounded).shadow
	for job, size := range v.runs[0].size {
		if v.runs[0].work.Jobs[job].GPUs == gpus {
			return v.ends[size]
		}
	}
	return 0
}

// Draws draws the work of each job of a state in which all jobs have begun. The lists are by job, in steps.
func Draws(stated, work, remaining []float64, sample uint64) []float64 {
	n := len(work)
	w := &Workload{Jobs: make([]Job, n)}
	s := &State{Workload: w, Arrived: n, Remaining: make([]float64, n)}
	for job := range work {
		w.Jobs[job].Work, s.Remaining[job] = stated[job], stated[job]
	}
	var p posterior
	p.reset(n)
	p.follow(s)
	for job := range work {
		if w.Jobs[job].Work = work[job]; remaining[job] < work[job] {
			s.Running = append(s.Running, Running{Job: job})
		}
	}
	s.Remaining = remaining
	p.follow(s)
	draws := make([]float64, n)
	for job := range draws {
		draws[job] = p.draw(s, job, p.computed(s, job), sample)
	}
	return draws
}

// Promise returns the first job that became overdue, and the latest time at which it must start, in s. p is a policy of
// [Limit] that has just decided. head is -1 if no job is overdue.
func Promise(p Policy, s *State) (head int, at float64) {
	b := p.(*bounded)
	if b.head < 0 {
		return -1, 0
	}
	b.count(s)
	if _, _, ok := b.fastest(s, b.head); ok {
		return b.head, s.Now
	}
	return b.head, s.Now + b.reserve(s, b.head)
}

// Due returns the time at which a job became overdue, in s, or +Inf.
func Due(p Policy, job int) float64 { return p.(*bounded).due[job] }

// Chosen returns the job for which a policy of [Limit] stops other jobs, and the jobs that it has yet to stop. job is
// -1 if there is none.
func Chosen(p Policy) (job int, victims []int) {
	b := p.(*bounded)
	return b.job, b.victims
}

// Swap is a simple search for the job that justifies stopping other jobs. It returns this job, or -1, and the jobs to
// stop. p is a policy of [Limit] that has just decided. If a job is overdue, overdue is true and job is -1.
// Swap tries the shortest job of each shape, in the order of their GPU time. It tries each shape, regardless of
// of other shapes.
func Swap(p Policy, s *State) (job int, victims []int, overdue bool) {
	b := p.(*bounded)
	if b.head >= 0 {
		return -1, nil, true
	}
	before, gpus, left := b.job, slices.Clone(b.gpus), slices.Clone(b.victims)
	defer func() { b.job, b.gpus, b.victims = before, gpus, left }()
	need := 0
	for _, q := range s.Queue {
		need += s.Workload.Jobs[q].GPUs
	}
	least := func(q int) float64 {
		return b.area(s, q, s.Remaining[q]) + float64(s.Workload.Jobs[q].GPUs)*b.load(s, q)
	}
	order := slices.Clone(s.Queue)
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(least(x), least(y)) })
	tried := map[shape]bool{} // if the shortest job of a shape stops no job, a longer one does not either
	for _, q := range order {
		key := s.Workload.Jobs[q].shape()
		if tried[key] {
			continue
		}
		tried[key] = true
		b.job, b.victims = -1, nil
		begins := b.reserve(s, q)
		if b.preempt(s, q, func(r *Running) bool {
			n, kind := len(r.GPUs), &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
			cost := kind.Save + kind.Load
			return !b.isLate(r.Job) && (n <= s.Workload.Jobs[q].GPUs || need <= n) && begins > cost &&
				b.area(s, r.Job, s.Steps(r)) > least(q)+cost*float64(n)
		}) == stopSome {
			return q, b.victims, false
		}
	}
	return -1, nil, false
}

// Searches counts the cases of the last search of [bounded.swap]. A test uses the counts to check that it covers all
// cases.
type Searches struct {
	Largest  int // classes that are refused even with their largest demand
	Single   int // classes with several demands whose jobs are tried one by one
	Few      int // classes in which a demand and larger ones are refused
	Larger   int // jobs that wait, refused because of a smaller demand
	Unfit    int // refused shapes without an effect on other demands
	FewYield int // numbers of GPUs for which too few can become free
	Whole    int // classes that are refused as a whole
}

// Searched adds the counts of the last search of p, a policy of [Limit] that has just decided. Each search has a
// number: turn is the number that the last call returned, and Searched returns the current one.
func (n *Searches) Searched(p Policy, s *State, turn int) int {
	b := p.(*bounded)
	v := &b.swaps
	if v.turn == turn {
		return turn
	}
	for _, at := range v.few {
		if at == v.turn {
			n.FewYield++
		}
	}
	for class := range v.class {
		none, r := b.stays.none(class), &b.stays.class[class]
		if none {
			n.Whole++
		}
		if r.turn == b.stays.turn && r.demand != (demand{}) {
			n.Few++
		}
		switch c := &v.class[class]; {
		case c.turn != v.turn || !c.largest:
		case none:
			n.Largest++
		default:
			n.Single++
		}
	}
	for _, q := range s.Queue {
		shape := b.shapes.of[q]
		d, r := b.shapes.need(q), &b.stays.class[b.shapes.class[shape]]
		by := r.turn == b.stays.turn && d.covers(r.demand) && !b.shapes.mixed[shape]
		switch {
		case by && r.demand != (demand{}) && r.demand != d:
			n.Larger++
		case !by && b.stays.own(shape):
			n.Unfit++
		}
	}
	return v.turn
}

// Reaches reports whether each count is at least the same count of least.
func (n *Searches) Reaches(least Searches) bool {
	return n.Largest >= least.Largest && n.Single >= least.Single && n.Few >= least.Few && n.Larger >= least.Larger &&
		n.Unfit >= least.Unfit && n.FewYield >= least.FewYield && n.Whole >= least.Whole
}
