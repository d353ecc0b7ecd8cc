package simulate

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// New checks its inputs and returns a simulation at the time of the first arrival. The simulation keeps the inputs, so
// the caller must not change them.
func New(c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds, o Options) (*Sim, error) {
	if err := errors.Join(c.Check(), o.check(c)); err != nil {
		return nil, err
	}
	gpus, machines := len(c.GPUs), len(c.Machines)
	s := &Sim{
		state: scheduler.State{Cluster: c, Speeds: speeds, Up: make([]bool, gpus), OnGPU: make([][]int, gpus),
			FreeCPUs: make([]float64, machines), FreeMem: make([]float64, machines)},
		options:   o,
		busySince: make([]float64, gpus), upSince: make([]float64, gpus), busy: make([]float64, gpus),
		up: make([]float64, gpus),
	}
	on := make([]int, gpus*scheduler.MaxSharing)
	for g := range s.state.OnGPU {
		s.state.OnGPU[g] = on[g*scheduler.MaxSharing : g*scheduler.MaxSharing : (g+1)*scheduler.MaxSharing]
	}
	s.running = make([]scheduler.Running, gpus*scheduler.MaxSharing)
	s.state.Running, s.state.Journal = s.running[:0], &s.journal
	return s, s.Reset(w)
}

func (o *Options) check(c *scheduler.Cluster) error {
	var faults []error
	if !(o.Checkpoint >= 0) || math.IsInf(o.Checkpoint, 1) {
		faults = append(faults, fmt.Errorf("time between checkpoints: got %v s, want a finite number of at least 0",
			o.Checkpoint))
	}
	if !(o.Until >= 0) {
		faults = append(faults, fmt.Errorf("end of the simulation: got %v s, want at least 0", o.Until))
	}
	for i, x := range o.Changes {
		if math.IsNaN(x.At) || x.GPU < 0 || x.GPU >= len(c.GPUs) {
			faults = append(faults,
				fmt.Errorf("change %d: got GPU %d at %v s, want a GPU from 0 to %d and a finite time", i, x.GPU, x.At,
					len(c.GPUs)-1))
		}
		if i > 0 && x.At < o.Changes[i-1].At {
			faults = append(faults, fmt.Errorf("change %d: got %v s after %v s, want the order of time", i, x.At,
				o.Changes[i-1].At))
		}
	}
	return errors.Join(faults...)
}

// Reset starts again with another workload on the same cluster. It reuses all memory.
func (s *Sim) Reset(w *scheduler.Workload) error {
	if err := w.Check(); err != nil {
		return err
	}
	if err := scheduler.HoldsAll(s.state.Cluster, w, s.state.Speeds); err != nil {
		return err
	}
	st := &s.state
	n := len(w.Jobs)
	st.Workload, st.Now, st.Arrived, st.Finished = w, 0, 0, 0
	if n > 0 {
		st.Now = w.Jobs[0].Arrival
	}
	for i := range st.Running {
		s.pool = append(s.pool, st.Running[i].GPUs)
	}
	st.Running = s.running[:0]
	s.traffic.reset(len(st.Cluster.Machines))
	s.journal.Reset(n)
	s.agenda.reset(n)
	s.stays = sized(s.stays, n)
	s.queue = sized(s.queue, n)
	st.Queue = s.queue[:0]
	st.Remaining, s.resumes, s.jobs = sized(st.Remaining, n), sized(s.resumes, n), sized(s.jobs, n)
	for i := range w.Jobs {
		st.Remaining[i], s.resumes[i] = w.Jobs[i].Work, false
		s.jobs[i] = scheduler.Completion{Arrival: w.Jobs[i].Arrival, Start: math.NaN(), Finish: math.NaN()}
	}
	for m, machine := range st.Cluster.Machines {
		st.FreeCPUs[m], st.FreeMem[m] = machine.CPUs, machine.Memory
	}
	for g := range st.Up {
		st.Up[g], st.OnGPU[g] = true, st.OnGPU[g][:0]
		s.busySince[g], s.upSince[g], s.busy[g], s.up[g] = math.NaN(), st.Now, 0, 0
	}
	s.marks.from.at, s.marks.to.at = math.NaN(), math.NaN()
	s.change, s.segments, s.decisions, s.events, s.end = 0, nil, 0, 0, st.Now
	s.happen()
	return nil
}

// Done reports whether all jobs have finished, or the simulation has reached its end.
func (s *Sim) Done() bool {
	return s.state.Finished == len(s.state.Workload.Jobs) || s.options.Until > 0 && s.state.Now >= s.options.Until
}

// Next advances to the next event, but not beyond a time in seconds (+Inf: no limit). It returns false and does not
// advance if all jobs have finished, or if until is +Inf and no further event can occur.
func (s *Sim) Next(until float64) bool {
	if s.Done() {
		return false
	}
	if s.options.Until > 0 {
		until = min(until, s.options.Until)
	}
	st := &s.state
	next := s.upcoming()
	if next > until {
		if !(until > st.Now) {
			return false
		}
		next = until
	} else if math.IsInf(next, 1) {
		return false
	}
	st.Now = max(st.Now, next)
	s.end = st.Now
	s.happen()
	return true
}

// upcoming returns the time of the next event, or +Inf if there is none.
func (s *Sim) upcoming() float64 {
	next := s.agenda.next()
	if s.change < len(s.options.Changes) {
		next = min(next, s.options.Changes[s.change].At)
	}
	if jobs := s.state.Workload.Jobs; s.state.Arrived < len(jobs) {
		next = min(next, jobs[s.state.Arrived].Arrival)
	}
	return next
}

// happen handles all events up to now.
func (s *Sim) happen() {
	st := &s.state
	for { // jobs in the order of their start; an event of a job may make its partner end now
		for s.agenda.next() <= st.Now {
			job := s.agenda.pop()
			s.ready.push(s.journal.Order(job), job)
		}
		if len(s.ready) == 0 {
			break
		}
		s.events++
		s.turn(s.ready.pop())
	}
	for ; s.change < len(s.options.Changes) && s.options.Changes[s.change].At <= st.Now; s.change++ {
		s.events++
		s.apply(s.options.Changes[s.change])
	}
	for ; st.Arrived < len(st.Workload.Jobs) && st.Workload.Jobs[st.Arrived].Arrival <= st.Now; st.Arrived++ {
		s.events++
		s.enqueue(st.Arrived)
	}
	s.observe()
	s.settle()
}

// settle updates speeds and remaining steps.
func (s *Sim) settle() {
	s.network()
	if s.lazy {
		return
	}
	for i := range s.state.Running {
		r := &s.state.Running[i]
		r.Remaining = s.steps(r.Job)
		s.state.Remaining[r.Job] = r.Remaining
	}
}

// steps returns the remaining steps of a running job.
func (s *Sim) steps(job int) float64 {
	a := &s.stays[job]
	if a.phase != computing {
		return a.remaining
	}
	return max(0, a.remaining-a.speed*(s.state.Now-a.anchor))
}

// turn handles the next event of a running job, which the agenda no longer has.
func (s *Sim) turn(job int) {
	a := &s.stays[job]
	switch a.phase {
	case loading:
		a.phase, a.anchor = computing, s.state.Now
		s.setSpeed(job, a.base)
		s.agenda.set(job, a.anchor+a.remaining/a.speed)
		s.touch(job)
	case computing:
		s.state.Remaining[job] = 0
		s.jobs[job].Finish = s.state.Now
		s.state.Finished++
		s.leave(job, scheduler.Finished)
	case saving:
		s.leave(job, scheduler.Stopped)
		s.resumes[job] = true
		s.enqueue(job)
	}
}

// apply makes a GPU available or not.
func (s *Sim) apply(c Change) {
	st, g := &s.state, c.GPU
	if st.Up[g] == c.Up {
		return
	}
	if c.Up {
		st.Up[g], s.upSince[g] = true, st.Now
		s.journal.GPU(g)
		return
	}
	for len(st.OnGPU[g]) > 0 {
		s.fail(st.OnGPU[g][0])
	}
	s.journal.GPU(g)
	st.Up[g] = false
	s.up[g] += st.Now - s.upSince[g]
	s.upSince[g] = math.NaN()
}

// fail removes a job from its GPUs and resets it to its last checkpoint.
func (s *Sim) fail(job int) {
	s.progress(job)
	s.state.Remaining[job] = s.stays[job].saved
	s.jobs[job].Stops++
	s.resumes[job] = s.resumes[job] || s.stays[job].saved < s.state.Workload.Jobs[job].Work
	s.leave(job, scheduler.Failed)
	s.enqueue(job)
}

// Result returns the outcome up to the current time. It shares no memory with the simulation.
func (s *Sim) Result(policy string) *scheduler.Result {
	st := &s.state
	r := &scheduler.Result{Policy: policy, Jobs: append([]scheduler.Completion(nil), s.jobs...),
		Segments: append([]scheduler.Segment(nil), s.segments...), End: s.end, Decisions: s.decisions, Events: s.events,
		GPUHours: make([]float64, len(st.Up)), Available: make([]float64, len(st.Up)), Window: s.window()}
	for i := range r.Segments {
		if math.IsNaN(r.Segments[i].To) { // still runs
			r.Segments[i].To, r.Segments[i].Ended = st.Now, scheduler.Unfinished
		}
	}
	for g := range st.Up {
		busy, up := s.seconds(g)
		r.GPUHours[g], r.Available[g] = busy/3600, up/3600
	}
	return r
}
