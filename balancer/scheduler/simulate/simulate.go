package simulate

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Change makes a GPU available or unavailable.
type Change struct {
	At  float64 // seconds
	GPU int     // index into Cluster.GPUs
	Up  bool
}

// Options of a simulation. The zero value is a cluster that does not change.
type Options struct {
	Changes    []Change // in the order of At; changes before the first arrival apply at the start
	Checkpoint float64  // seconds of computation between checkpoints of a job; 0: jobs save only when they are stopped
	Record     bool     // keep segments
	Until      float64  // end of the run, in seconds; 0: when all jobs have finished
}

// phase is the current activity of a job on its GPUs.
type phase uint8

const (
	loading phase = iota
	computing
	saving
)

// stay is the simulator's own data of a running job. It has the same index as the job's scheduler.Running.
type stay struct {
	phase     phase
	spread    bool    // over several machines
	base      float64 // steps/s before the limits of the network
	anchor    float64 // seconds: when the current speed began
	remaining float64 // steps at anchor
	saved     float64 // steps that remain after the last checkpoint
	segment   int     // index into Result.Segments, -1 if not recorded
}

// Sim is a running simulation of a cluster. It is not safe for concurrent use.
type Sim struct {
	state   scheduler.State
	options Options

	stays []stay
	due   []float64 // by running job: seconds of its next event
	pool  [][]int   // slices for GPUs of running jobs

	queue   []int // buffer of state.Queue
	resumes []bool
	change  int // next of options.Changes
	crowded bool
	load    []float64 // by machine: bytes/s that jobs want to send

	busySince, upSince []float64 // by GPU: seconds; NaN if not busy, not available
	busy, up           []float64 // by GPU: seconds

	jobs      []scheduler.Completion
	segments  []scheduler.Segment
	decisions int
	events    int
	end       float64
}

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
		options: o, load: make([]float64, machines),
		busySince: make([]float64, gpus), upSince: make([]float64, gpus), busy: make([]float64, gpus),
		up: make([]float64, gpus),
	}
	on := make([]int, gpus*scheduler.MaxSharing)
	for g := range s.state.OnGPU {
		s.state.OnGPU[g] = on[g*scheduler.MaxSharing : g*scheduler.MaxSharing : (g+1)*scheduler.MaxSharing]
	}
	most := gpus * scheduler.MaxSharing
	s.state.Running = make([]scheduler.Running, 0, most)
	s.stays, s.due = make([]stay, 0, most), make([]float64, 0, most)
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
	for job := range w.Jobs {
		if err := scheduler.Holds(s.state.Cluster, w, s.state.Speeds, job); err != nil {
			return err
		}
	}
	st := &s.state
	n := len(w.Jobs)
	st.Workload, st.Now, st.Arrived, st.Finished = w, 0, 0, 0
	if n > 0 {
		st.Now = w.Jobs[0].Arrival
	}
	for len(st.Running) > 0 {
		s.drop(0)
	}
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
	s.change, s.crowded, s.segments, s.decisions, s.events, s.end = 0, false, nil, 0, 0, st.Now
	s.happen()
	return nil
}

// sized returns a slice of n elements, which reuses the memory of v.
func sized[E any](v []E, n int) []E {
	if cap(v) < n {
		return make([]E, n)
	}
	return v[:n]
}

// State returns the current state. It changes with each Apply and Next; callers must not change it.
func (s *Sim) State() *scheduler.State { return &s.state }

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
	next := math.Inf(1)
	for _, at := range s.due {
		if at < next {
			next = at
		}
	}
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
	for i := 0; i < len(s.due); {
		if s.due[i] > st.Now {
			i++
			continue
		}
		s.events++
		if gone := s.turn(i); gone {
			i = 0 // the speed of the partner has changed
		}
	}
	for ; s.change < len(s.options.Changes) && s.options.Changes[s.change].At <= st.Now; s.change++ {
		s.events++
		s.apply(s.options.Changes[s.change])
	}
	for ; st.Arrived < len(st.Workload.Jobs) && st.Workload.Jobs[st.Arrived].Arrival <= st.Now; st.Arrived++ {
		s.events++
		s.enqueue(st.Arrived)
	}
	s.settle()
}

// settle updates speeds and remaining steps.
func (s *Sim) settle() {
	if s.crowded {
		s.network()
	}
	st := &s.state
	for i := range s.stays {
		if a := &s.stays[i]; a.phase == computing {
			r := &st.Running[i]
			r.Remaining = max(0, a.remaining-r.Speed*(st.Now-a.anchor))
			st.Remaining[r.Job] = r.Remaining
		}
	}
}

// turn handles the next event of a running job, and reports whether the job has left its GPUs.
func (s *Sim) turn(i int) (gone bool) {
	a, r := &s.stays[i], &s.state.Running[i]
	switch a.phase {
	case loading:
		a.phase, a.anchor, r.Speed = computing, s.state.Now, a.base
		s.due[i] = a.anchor + a.remaining/r.Speed
		s.crowded = s.crowded || a.spread
		return false
	case computing:
		job := r.Job
		s.state.Remaining[job] = 0
		s.jobs[job].Finish = s.state.Now
		s.state.Finished++
		s.leave(i, scheduler.Finished)
	case saving:
		job := r.Job
		s.leave(i, scheduler.Stopped)
		s.resumes[job] = true
		s.enqueue(job)
	}
	return true
}

// apply makes a GPU available or not.
func (s *Sim) apply(c Change) {
	st, g := &s.state, c.GPU
	if st.Up[g] == c.Up {
		return
	}
	if c.Up {
		st.Up[g], s.upSince[g] = true, st.Now
		return
	}
	for len(st.OnGPU[g]) > 0 {
		s.fail(s.find(st.OnGPU[g][0]))
	}
	st.Up[g] = false
	s.up[g] += st.Now - s.upSince[g]
	s.upSince[g] = math.NaN()
}

// fail removes a job from its GPUs and resets it to its last checkpoint.
func (s *Sim) fail(i int) {
	s.progress(i)
	job := s.state.Running[i].Job
	s.state.Remaining[job] = s.stays[i].saved
	s.jobs[job].Stops++
	s.resumes[job] = s.resumes[job] || s.stays[i].saved < s.state.Workload.Jobs[job].Work
	s.leave(i, scheduler.Failed)
	s.enqueue(job)
}

// Result returns the outcome up to the current time. It shares no memory with the simulation.
func (s *Sim) Result(policy string) *scheduler.Result {
	st := &s.state
	r := &scheduler.Result{Policy: policy, Jobs: append([]scheduler.Completion(nil), s.jobs...),
		Segments: append([]scheduler.Segment(nil), s.segments...), End: s.end, Decisions: s.decisions, Events: s.events,
		GPUHours: make([]float64, len(st.Up)), Available: make([]float64, len(st.Up))}
	for i := range r.Segments {
		if math.IsNaN(r.Segments[i].To) { // still runs
			r.Segments[i].To, r.Segments[i].Ended = st.Now, scheduler.Unfinished
		}
	}
	for g := range st.Up {
		busy, up := s.busy[g], s.up[g]
		if !math.IsNaN(s.busySince[g]) {
			busy += st.Now - s.busySince[g]
		}
		if !math.IsNaN(s.upSince[g]) {
			up += st.Now - s.upSince[g]
		}
		r.GPUHours[g], r.Available[g] = busy/3600, up/3600
	}
	return r
}
