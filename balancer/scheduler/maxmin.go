package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Constants of policy maxmin, those of Gavel's simulator.
const (
	// maxminRound is the length of a round in seconds. At the start of a round, jobs may be stopped and started. With
	// shorter rounds, the policy follows the fair allocation more closely, but jobs write more checkpoints.
	maxminRound = 360
	// maxminReset is the least time in seconds between two computations of the allocation.
	maxminReset = 1920
)

const (
	// maxminLongest is the longest job in seconds on its fastest GPUs, 31 years. The policy decides in each round, so a
	// simulation of longer jobs would take hours. If several jobs share GPUs alternately, a limit of package simulate
	// ends the run earlier.
	maxminLongest = 1e9
	// maxminLatest is the latest arrival in seconds. At later times, rounding errors are not small relative to a round.
	maxminLatest = 1e15
)

// maxmin is max-min fairness over effective speed, as in Gavel (Narayanan et al., OSDI 2020). The effective speed of a
// job is the mean of its speed over time, relative to an equal part of the cluster. The speed on an equal part is the
// mean of the job's speeds over all GPUs, divided by the job's number of GPUs. [fairness] computes for each job the
// fraction of time on each type of GPU.
//
// The policy approaches these fractions in rounds. The priority of a job on a type is a quotient. The dividend is the
// job's fraction. The divisor is the fraction of the type's time that the job has received since the last computation.
// The pairs of a job and a type with the highest priorities get the GPUs of the round. A job that was on the type keeps
// its GPUs. The remaining GPUs go to pairs whose fraction is 0. Of these, the pairs with the highest speed relative to
// the job's fastest type come first. Gavel serves one type after the other, and gives idle GPUs of a type to jobs whose
// fraction is on a later type. Its result therefore depends on the order of the types ([Options.TypeByType]).
//
// During a round, the policy does not stop any job. If GPUs become free during a round, waiting jobs get them
// immediately. In Gavel's simulator, such GPUs are idle until the round ends.
//
// The field Job.Priority has no effect. A job that does not fit on GPUs of one type runs on free GPUs of any types.
type maxmin struct {
	placer
	byType  bool // serve the types one after the other
	fair    fairness
	active  []int     // jobs that have arrived and have not finished, ascending
	members []int     // active jobs of the last allocation
	known   []bool    // by job: is in the last allocation
	x       []float64 // by job and type: fraction of time
	spent   []float64 // by job and type: seconds since the last allocation
	used    []float64 // by type: sum of spent
	target  []int     // by job: type in this round, or -1
	entries []entry
	left    []int     // by type: GPUs that have no job yet
	rates   []float64 // by job and type: speed relative to the fastest type of the job; 0: does not run there
	order   []int     // types, the one on which the jobs are fastest first
	last    float64   // seconds: end of the time in spent
	round   float64   // seconds: start of the next round
	reset0  float64   // seconds: last allocation; NaN: none
	arrived int
	ended   int
	queue   waiting // all jobs, in the order of arrival
	chosen  waiting // jobs with a target
}

// entry is a job on a type of GPU.
type entry struct {
	job, typ int
	priority float64
	fraction float64
	speed    float64 // relative to the fastest type of the job
}

// TooLongError reports a job that policy maxmin or sia cannot run: it is too long, or arrives too late, for the rounds
// of the policy.
type TooLongError struct {
	Job     int
	Name    string
	Arrival bool    // the time is that of the arrival, not the running time
	Seconds float64 // shortest running time, or the time of arrival
	Most    float64 // largest valid time, seconds
	Round   float64 // length of a round, seconds
}

func (e *TooLongError) Error() string {
	if e.Arrival {
		return fmt.Sprintf("job %d (%q): arrival: got %.3g s, want at most %.3g s, because the policy decides every %.0f s; check the unit of the arrival",
			e.Job, e.Name, e.Seconds, e.Most, e.Round)
	}
	return fmt.Sprintf("job %d (%q): got a running time of %.3g s on its fastest GPUs, want at most %.3g s, because the policy decides every %.0f s; check the work of the job and the speeds of its kind, or choose another policy",
		e.Job, e.Name, e.Seconds, e.Most, e.Round)
}

// tooLong returns an error for a job that arrives after maxminLatest, or takes more than longest at its fastest speed,
// in steps/s. longest and round are in seconds. Without a speed, the simulator refuses the job.
func tooLong(job int, j *Job, fastest, longest, round float64) error {
	if seconds := j.Work / fastest; fastest > 0 && !(seconds <= longest) {
		return &TooLongError{Job: job, Name: j.Name, Seconds: seconds, Most: longest, Round: round}
	}
	if j.Arrival > maxminLatest {
		return &TooLongError{Job: job, Name: j.Name, Arrival: true, Seconds: j.Arrival, Most: maxminLatest,
			Round: round}
	}
	return nil
}

func (p *maxmin) Name() string { return "maxmin" }

func (p *maxmin) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	n := len(w.Jobs) * len(c.Types)
	p.x, p.spent, p.rates = make([]float64, n), make([]float64, n), make([]float64, n)
	p.used, p.left = make([]float64, len(c.Types)), make([]int, len(c.Types))
	p.target, p.known = make([]int, len(w.Jobs)), make([]bool, len(w.Jobs))
	p.last, p.round, p.reset0, p.arrived, p.ended = 0, math.Inf(-1), math.NaN(), -1, -1
	p.queue.reset(&p.shapes, false)
	p.chosen.reset(&p.shapes, true)
	empty := c.vacant()
	for i := range w.Jobs {
		p.target[i] = -1
		j := &w.Jobs[i]
		rates := p.rates[i*len(c.Types) : (i+1)*len(c.Types)]
		fastest := 0.0
		for t := range rates {
			rates[t] = empty.speed(j, w, s, t)
			fastest = max(fastest, rates[t])
		}
		if fastest > 0 {
			for t := range rates {
				rates[t] /= fastest // the linear program needs numbers of similar size
			}
		} else { // mixed sets only: at most the speed of that many of its fastest GPUs
			for t := range rates {
				fastest = max(fastest, float64(j.GPUs)*s.Alone(j.Kind, t, 1, false))
			}
		}
		if err := tooLong(i, j, fastest, maxminLongest, maxminRound); err != nil {
			return err
		}
	}
	speed := make([]float64, len(c.Types)) // sum over all jobs
	for i, v := range p.rates {
		speed[i%len(c.Types)] += v
	}
	p.order = p.order[:0]
	for t := range c.Types {
		p.order = append(p.order, t)
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(speed[b], speed[a]) })
	return nil
}

func (p *maxmin) Decide(s *State) Action {
	p.account(s)
	if s.Now >= p.round {
		p.begin(s)
	}
	types := len(s.Cluster.Types)
	for i := range s.Running {
		r := &s.Running[i]
		if math.IsInf(r.Leaves, 1) && !p.mixed(r.Job) && p.target[r.Job] != s.Cluster.GPUs[r.GPUs[0]].Type {
			why := ""
			if t := p.target[r.Job]; p.explain && t >= 0 {
				why = "the job has GPUs of type " + s.Cluster.Types[t].Name + " in this round"
			} else if p.explain {
				why = "in this round, other jobs have received less of their fair fraction of the time"
			}
			return Action{Verb: Stop, Job: r.Job, Reason: why}
		}
	}
	if len(s.Queue) > 0 && p.count(s) > 0 {
		p.chosen.sync(s, func(job int) (float64, bool) { return float64(job), p.target[job] >= 0 })
		at := p.chosen.all.first()
		for x, ok := at.get(); ok; x, ok = at.get() {
			t := p.target[x.id]
			if gpus, _, ok := p.place(s, x.id, t); ok {
				return Action{Verb: Start, Job: x.id, GPUs: gpus, Reason: p.fraction(p.x[x.id*types+t])}
			}
			at.next()
		}
		if job := p.fill(s); job >= 0 {
			if gpus, _, ok := p.fastest(s, job); ok {
				p.target[job] = s.Cluster.GPUs[gpus[0]].Type
				return Action{Verb: Start, Job: job, GPUs: gpus,
					Reason: p.reason(
						p.why(s, job, gpus, "the GPUs are free until the next round, and the job has waited longest"))}
			}
		}
	}
	if len(s.Queue) == 0 && len(s.Running) == 0 {
		return Action{} // the next arrival begins a round
	}
	return Action{Until: p.round}
}

// reason returns a text if the policy explains its decisions.
func (p *maxmin) reason(text string) string {
	if p.explain {
		return text
	}
	return ""
}

// fraction explains the start of a job that has GPUs in this round.
func (p *maxmin) fraction(x float64) string {
	switch {
	case !p.explain:
		return ""
	case x > 0:
		return fmt.Sprintf(
			"the job has GPUs of this type in this round: its fair fraction of the time on this type is %.2f", x)
	}
	return "GPUs of this type are left in this round, because no job with a fair fraction claims them"
}

// account adds the time since the last decision to the jobs that ran.
func (p *maxmin) account(s *State) {
	for i := range s.Running {
		r := &s.Running[i]
		t := s.Cluster.GPUs[r.GPUs[0]].Type
		since := max(p.last, r.Since)
		p.spent[r.Job*len(p.used)+t] += s.Now - since
		p.used[t] += s.Now - since
	}
	p.last = s.Now
}

// begin plans a round.
func (p *maxmin) begin(s *State) {
	p.round = s.Now + maxminRound
	p.active = append(p.active[:0], s.Queue...)
	for i := range s.Running {
		if job := s.Running[i].Job; math.IsInf(s.Running[i].Leaves, 1) {
			p.active = append(p.active, job)
		}
	}
	slices.Sort(p.active)
	changed := p.arrived != s.Arrived || p.ended != s.Finished
	if changed && !(s.Now-p.reset0 < maxminReset) {
		p.allocate(s)
	}
	p.choose(s)
}

// allocate computes the fractions of time. The linear program has many solutions, and the solution that it finds must
// not depend on the order of the types in the cluster. It therefore lists the types in the order of p.order.
func (p *maxmin) allocate(s *State) {
	types := len(s.Cluster.Types)
	p.reset0, p.arrived, p.ended = s.Now, s.Arrived, s.Finished
	f := &p.fair
	f.rate, f.gpus = f.rate[:0], f.gpus[:0]
	if len(f.size) != types {
		f.size = make([]float64, types)
	}
	clear(f.size)
	total := 0.0
	for g, up := range s.Up {
		if up {
			f.size[slices.Index(p.order, s.Cluster.GPUs[g].Type)]++
			total++
		}
	}
	for _, job := range p.members {
		p.known[job] = false
	}
	p.members = append(p.members[:0], p.active...)
	clear(p.used)
	for i, job := range p.members {
		p.known[job] = true
		rates := p.rates[job*types : (job+1)*types]
		mean := 0.0
		for k, t := range p.order {
			mean += rates[t] * f.size[k] / total
		}
		var scaled []float64
		if cap(f.rate) > i {
			scaled = f.rate[:i+1][i][:0]
		}
		for k, t := range p.order {
			v := 0.0
			if f.size[k] > 0 && mean > 0 {
				v = rates[t] * float64(s.Workload.Jobs[job].GPUs) / mean
			}
			scaled = append(scaled, v)
		}
		f.rate, f.gpus = append(f.rate, scaled), append(f.gpus, float64(s.Workload.Jobs[job].GPUs))
		for t := range types {
			// As in Gavel, each job begins with half a round on each type, so that priorities are finite.
			p.spent[job*types+t] = maxminRound / 2
			p.used[t] += maxminRound / 2
		}
	}
	for k := range f.size {
		f.size[k] = max(f.size[k], 1e-9) // no job has a rate on a type without GPUs
	}
	x, _ := f.solve()
	for i, job := range p.members {
		for k, t := range p.order {
			p.x[job*types+t] = x[i*types+k]
		}
	}
}

// choose assigns the GPUs of a round to jobs. The order of the types has no effect, except if a job has the same
// fraction, deficit and speed on two types.
func (p *maxmin) choose(s *State) {
	types := len(s.Cluster.Types)
	p.chosen.read = reader{} // the targets change without a record in the journal
	clear(p.left)
	for g, up := range s.Up {
		if up {
			p.left[s.Cluster.GPUs[g].Type]++
		}
	}
	p.entries = p.entries[:0]
	for _, job := range p.active {
		p.target[job] = -1
		for t := range types {
			at := job*types + t
			if p.rates[at] == 0 {
				continue
			}
			e := entry{job: job, typ: t, speed: p.rates[at]}
			if p.known[job] {
				e.fraction = p.x[at]
				if spent := p.spent[at]; spent > 0 {
					e.priority = e.fraction * p.used[t] / spent
				}
			}
			p.entries = append(p.entries, e)
		}
	}
	slices.SortFunc(p.entries, func(a, b entry) int {
		if p.byType {
			return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(b.priority, a.priority),
				cmp.Compare(b.fraction, a.fraction), cmp.Compare(a.job, b.job))
		}
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.fraction, a.fraction),
			cmp.Compare(b.speed, a.speed),
			cmp.Compare(a.job, b.job), cmp.Compare(a.typ, b.typ))
	})
	for _, e := range p.entries {
		if n := s.Workload.Jobs[e.job].GPUs; p.target[e.job] < 0 && n <= p.left[e.typ] {
			p.left[e.typ] -= n
			p.target[e.job] = e.typ
		}
	}
}

// fill returns the first job of the queue that fits now, or -1. While a job saves its checkpoint, fill returns -1,
// because the GPUs of this job belong to jobs of this round.
func (p *maxmin) fill(s *State) int {
	for i := range s.Running {
		if !math.IsInf(s.Running[i].Leaves, 1) {
			return -1
		}
	}
	p.queue.sync(s, func(job int) (float64, bool) { return float64(job), true })
	p.asked.begin()
	return p.queue.search(math.Inf(1), func(class int) float64 {
		if p.fastestRate(class) == 0 {
			return -1
		}
		return math.Inf(1)
	}, func(job int) bool {
		_, ok := p.ask(s, &p.index, &p.asked, job)
		return ok
	})
}
