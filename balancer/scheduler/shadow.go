package scheduler

import (
	"math"
	"slices"
)

// shadow simulates policy easy next to another policy: on the same cluster, with the jobs that have arrived, and as if
// easy had scheduled all jobs from the beginning. It states how long jobs would have waited under easy. The zero value
// is ready after reset.
//
// The simulation is that of package simulate without a network that slows jobs down, and without lost work: a job on
// a GPU that fails continues elsewhere from where it was. easy sees the work of a job as it was stated at its
// arrival. The job ends as soon as the simulated easy has computed its work, which the posterior draws when the job
// starts. From then on, the simulation is corrected as follows:
//
//   - If the true job has done more steps than the drawn work, the work is drawn again.
//   - If the true job ends, its work is known. This counts only if the simulated job has not done as many steps yet.
//     Otherwise simulated jobs would end at the smaller one of the drawn and the true work, and would be too short on
//     average.
//   - If a job with a similar stated work ends, the work is drawn again, above the steps of the simulated job.
//
// An arrival or an end costs as much as a decision of policy easy. With drawn work, each call of follow also reads all
// running jobs.
type shadow struct {
	policy  easy
	state   State
	work    Workload // with the work as stated at the arrival
	journal Journal
	news    reader // jobs of the true state
	freed   reader // GPUs of the true state
	events  sorted // the next event of each running job
	runs    []ghost
	size    []int     // by job: index into shapes.sizes
	waits   []sorted  // by size: jobs that have not started, by arrival
	longest []float64 // by size: the longest wait of a job that has started, in s

	posterior *posterior
	sample    uint64 // number of the draws
	exact     bool   // posterior.inexact was false at the last correction

	queue   []int     // buffer of state.Queue
	running []Running // buffer of state.Running
}

// ghost is a job in a shadow.
type ghost struct {
	started bool    // at least once
	runs    bool    // now
	since   float64 // s: when it got its GPUs
	speed   float64 // steps/s
	guess   float64 // steps from since, as easy believes
	total   float64 // steps of the job
	done    float64 // steps before since
	at      float64 // s: its item in events
}

// reset prepares a run. posterior stays in use; it must follow the true state before the shadow does.
func (v *shadow) reset(c *Cluster, w *Workload, s Speeds, posterior *posterior, sample uint64) error {
	n := len(w.Jobs)
	v.posterior, v.sample, v.exact = posterior, sample, true
	v.work = Workload{Kinds: w.Kinds, Jobs: append(v.work.Jobs[:0], w.Jobs...)}
	v.journal.Reset(n)
	v.news, v.freed = reader{}, reader{}
	v.events.clear()
	v.queue, v.running, v.runs = make([]int, n), make([]Running, len(c.GPUs)), make([]ghost, n)
	v.state = State{Cluster: c, Workload: &v.work, Speeds: s, Queue: v.queue[:0], Running: v.running[:0],
		Remaining: make([]float64, n), Up: make([]bool, len(c.GPUs)), OnGPU: make([][]int, len(c.GPUs)),
		FreeCPUs: make([]float64, len(c.Machines)), FreeMem: make([]float64, len(c.Machines)), Journal: &v.journal,
		StepsOf: v.steps}
	if n > 0 {
		v.state.Now = w.Jobs[0].Arrival
	}
	for g := range v.state.Up {
		v.state.Up[g] = true
	}
	for m := range c.Machines {
		v.state.FreeCPUs[m], v.state.FreeMem[m] = c.Machines[m].CPUs, c.Machines[m].Memory
	}
	if err := v.policy.Reset(c, &v.work, s); err != nil {
		return err
	}
	shapes := &v.policy.shapes
	v.size = make([]int, n)
	for job := range v.size {
		v.size[job] = shapes.sizeOf(job)
	}
	v.waits, v.longest = make([]sorted, len(shapes.sizes)), make([]float64, len(shapes.sizes))
	return nil
}

// wait returns the longest wait of a job with a number of GPUs up to now, in s: of the jobs that easy has started, and
// of those that it has not.
func (v *shadow) wait(size int) float64 {
	longest := v.longest[size]
	if l := &v.waits[size]; l.n > 0 {
		longest = max(longest, v.state.Now-l.at(0).key)
	}
	return longest
}

// follow advances to the time of the true state.
func (v *shadow) follow(s *State) {
	st := &v.state
	for {
		at := math.Inf(1)
		if v.events.n > 0 {
			at = v.events.at(0).key
		}
		if st.Arrived < s.Arrived {
			at = min(at, s.Workload.Jobs[st.Arrived].Arrival)
		}
		if !(at <= s.Now) {
			break
		}
		st.Now = max(st.Now, at)
		v.happen(s)
		v.decide(s)
	}
	st.Now = max(st.Now, s.Now)
	if v.mirror(s) {
		v.happen(s)
		v.decide(s)
	}
}

// happen handles all ends and arrivals up to now.
func (v *shadow) happen(s *State) {
	st := &v.state
	for v.events.n > 0 && v.events.at(0).key <= st.Now {
		x := v.events.pop()
		r := &v.runs[x.id]
		if !(x.key < v.end(x.id)) {
			v.leave(x.id)
			st.Finished++
			continue
		}
		r.guess *= 2 // the work is more than easy believes
		v.journal.Job(x.id)
		v.plan(x.id)
	}
	for ; st.Arrived < s.Arrived && s.Workload.Jobs[st.Arrived].Arrival <= st.Now; st.Arrived++ {
		job := st.Arrived
		v.work.Jobs[job].Work = v.posterior.stated[job]
		st.Remaining[job] = v.work.Jobs[job].Work
		v.waits[v.size[job]].insert(item{s.Workload.Jobs[job].Arrival, job})
		v.enqueue(job)
	}
}

// mirror takes over what the true state says about GPUs and about the work of jobs that run here. It reports whether
// easy must decide again.
func (v *shadow) mirror(s *State) (changed bool) {
	jobs, ok := v.news.jobs(s)
	ok = ok && v.exact && !v.posterior.inexact // otherwise any job can exceed its drawn work without a record
	if ok {
		for _, job := range jobs {
			changed = v.correct(s, job) || changed
		}
	} else {
		for i := range v.state.Running {
			changed = v.correct(s, v.state.Running[i].Job) || changed
		}
	}
	v.exact = !v.posterior.inexact
	gpus, ok := v.freed.gpus(s)
	if ok {
		for _, g := range gpus {
			changed = v.turn(g, s.Up[g]) || changed
		}
		return changed
	}
	for g, up := range s.Up {
		changed = v.turn(g, up) || changed
	}
	return changed
}

// turn makes a GPU available or not, and reports whether that is a change.
func (v *shadow) turn(g int, up bool) bool {
	if up == v.state.Up[g] {
		return false
	}
	for !up && len(v.state.OnGPU[g]) > 0 {
		v.fail(v.state.OnGPU[g][0])
	}
	v.state.Up[g] = up
	v.journal.GPU(g)
	return true
}

// correct takes over the work of a job that runs here.
func (v *shadow) correct(s *State, job int) bool {
	r := &v.runs[job]
	if !r.runs {
		return false
	}
	total, work := r.total, s.Workload.Jobs[job].Work
	switch p := v.posterior; {
	case !p.inexact || p.finished[job] && r.computed(v.state.Now) <= work:
		total = work
	case v.exact || !p.finished[job] && p.computed(s, job) > r.total || p.learns(job):
		total = p.draw(s, job, max(p.computed(s, job), r.computed(v.state.Now)), v.sample)
	}
	if total == r.total {
		return false
	}
	r.total = total
	v.events.remove(item{r.at, job})
	v.plan(job)
	return true
}

// computed returns the steps that a running job has done.
func (r *ghost) computed(now float64) float64 { return r.done + r.speed*(now-r.since) }

// end returns the time at which a running job ends, in s.
func (v *shadow) end(job int) float64 {
	r := &v.runs[job]
	return r.since + max(0, r.total-r.done)/r.speed
}

// plan adds the next event of a running job: its end, or the time at which it has computed what easy believes to be its
// work.
func (v *shadow) plan(job int) {
	r := &v.runs[job]
	r.at = key(max(v.state.Now, min(v.end(job), r.since+r.guess/r.speed)))
	v.events.insert(item{r.at, job})
}

// steps returns the remaining steps of a running job, as easy believes.
func (v *shadow) steps(job int) float64 {
	r := &v.runs[job]
	return max(0, r.guess-r.speed*(v.state.Now-r.since))
}

// decide applies the actions of easy.
func (v *shadow) decide(s *State) {
	for {
		a := v.policy.Decide(&v.state)
		if a.Verb != Start {
			return
		}
		v.start(s, a.Job, a.GPUs)
	}
}

func (v *shadow) start(s *State, job int, on []int) {
	st, r := &v.state, &v.runs[job]
	if !r.started {
		wait := st.Now - v.work.Jobs[job].Arrival
		v.longest[v.size[job]] = max(v.longest[v.size[job]], wait)
		v.waits[v.size[job]].remove(item{v.work.Jobs[job].Arrival, job})
	}
	gpus := append([]int(nil), on...)
	if !r.started {
		r.total = v.posterior.draw(s, job, v.posterior.computed(s, job), v.sample)
	}
	r.started, r.runs, r.since, r.speed, r.guess = true, true, st.Now, st.Rate(job, gpus, -1), st.Remaining[job]
	i, _ := slices.BinarySearch(st.Queue, job)
	st.Queue = cut(st.Queue, i)
	st.Running = append(roomy(st.Running, v.running), Running{Job: job, GPUs: gpus, Since: st.Now, Speed: r.speed,
		Remaining: r.guess, Ready: st.Now, Leaves: math.Inf(1), Partner: -1, Order: v.journal.Start(job)})
	for _, g := range gpus {
		st.OnGPU[g] = append(st.OnGPU[g], job)
		v.journal.GPU(g)
	}
	v.state.Account(gpus)
	v.plan(job)
}

// leave frees the GPUs of a job. The caller has removed the event of the job from the list of events.
func (v *shadow) leave(job int) {
	st := &v.state
	v.runs[job].runs = false
	i := v.journal.Find(st.Running, job)
	gpus := st.Running[i].GPUs
	v.journal.Job(job)
	for _, g := range gpus {
		st.OnGPU[g] = st.OnGPU[g][:0]
		v.journal.GPU(g)
	}
	v.state.Account(gpus)
	st.Running = cut(st.Running, i)
}

// fail puts a running job back into the queue.
func (v *shadow) fail(job int) {
	r := &v.runs[job]
	v.events.remove(item{r.at, job})
	left := v.steps(job)
	r.done += r.guess - left
	v.state.Remaining[job] = max(left, 1e-6*v.work.Jobs[job].Work) // not 0: the job may have more work than easy knows
	v.leave(job)
	v.enqueue(job)
}

func (v *shadow) enqueue(job int) {
	i, _ := slices.BinarySearch(v.state.Queue, job)
	q := append(roomy(v.state.Queue, v.queue), job)
	copy(q[i+1:], q[i:])
	q[i], v.state.Queue = job, q
	v.journal.Job(job)
}

// empty repeats another simulation of the same run up to now, and continues it until all jobs of its queue have
// started, without further arrivals. It then has the longest waits that these jobs lead to.
func (v *shadow) empty(of *shadow, s *State) {
	v.posterior, v.sample, v.exact = of.posterior, of.sample, of.exact
	v.journal.Reset(len(v.runs)) // the policy must read the whole state
	v.events.clear()
	copy(v.work.Jobs, of.work.Jobs)
	copy(v.runs, of.runs)
	copy(v.longest, of.longest)
	st, from := &v.state, &of.state
	st.Now, st.Arrived, st.Finished = from.Now, from.Arrived, from.Finished
	copy(st.Remaining, from.Remaining)
	copy(st.Up, from.Up)
	copy(st.FreeCPUs, from.FreeCPUs)
	copy(st.FreeMem, from.FreeMem)
	for g, jobs := range from.OnGPU {
		st.OnGPU[g] = append(st.OnGPU[g][:0], jobs...)
	}
	st.Queue, st.Running = append(v.queue[:0], from.Queue...), v.running[:0]
	for _, r := range from.Running {
		r.Order = v.journal.Start(r.Job)
		st.Running = append(st.Running, r)
		v.events.insert(item{v.runs[r.Job].at, r.Job})
	}
	for len(st.Queue) > 0 && v.events.n > 0 {
		st.Now = max(st.Now, v.events.at(0).key)
		v.happen(s)
		v.decide(s)
	}
}

// cut removes element i of a list that is a part of a buffer. It moves the shorter part of the list.
func cut[E any](list []E, i int) []E {
	if i < len(list)/2 {
		copy(list[1:i+1], list[:i])
		return list[1:]
	}
	copy(list[i:], list[i+1:])
	return list[:len(list)-1]
}

// roomy returns a list with room for one more element. Calls of cut move a list to the end of its buffer.
func roomy[E any](list, buffer []E) []E {
	if len(list) == cap(list) {
		return buffer[:copy(buffer, list)]
	}
	return list
}
