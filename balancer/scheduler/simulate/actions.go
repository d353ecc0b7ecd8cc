package simulate

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// ActionError reports an impossible action.
type ActionError struct {
	Action scheduler.Action
	Why    string
}

func (e *ActionError) Error() string {
	verb := "start"
	if e.Action.Verb == scheduler.Stop {
		verb = "stop"
	}
	return fmt.Sprintf("%s job %d on GPUs %v: %s", verb, e.Action.Job, e.Action.GPUs, e.Why)
}

// Apply starts or stops a job now. Wait changes nothing.
func (s *Sim) Apply(a scheduler.Action) error {
	switch a.Verb {
	case scheduler.Wait:
		return nil
	case scheduler.Start:
		return s.start(a)
	case scheduler.Stop:
		return s.stop(a)
	}
	return &ActionError{a, fmt.Sprintf("got verb %d, want Wait, Start or Stop", a.Verb)}
}

func (s *Sim) start(a scheduler.Action) error {
	st := &s.state
	speed, why := st.Fit(a.Job, a.GPUs)
	if why != scheduler.Fits {
		return &ActionError{a, why.String()}
	}
	if !s.dequeue(a.Job) {
		return &ActionError{a, scheduler.NotQueued.String()}
	}
	partner := -1
	if on := st.OnGPU[a.GPUs[0]]; len(on) > 0 {
		partner = on[0]
	}
	s.decisions++
	kind := &st.Workload.Kinds[st.Workload.Jobs[a.Job].Kind]
	work := st.Remaining[a.Job]
	stay := stay{phase: computing, spread: st.Cluster.Spread(a.GPUs), base: speed, anchor: st.Now, remaining: work,
		saved: work, segment: -1}
	running := scheduler.Running{Job: a.Job, GPUs: append(s.slice(), a.GPUs...), Since: st.Now, Speed: speed,
		Remaining: work,
		Ready:     st.Now, Leaves: math.Inf(1), Partner: partner}
	due := st.Now + work/speed
	if s.resumes[a.Job] && kind.Load > 0 {
		stay.phase, running.Speed, running.Ready = loading, 0, st.Now+kind.Load
		due = running.Ready
	}
	if s.options.Record {
		stay.segment = len(s.segments)
		s.segments = append(s.segments, scheduler.Segment{Job: a.Job, GPUs: append([]int(nil), a.GPUs...), From: st.Now,
			To: math.NaN(), Reason: a.Reason})
	}
	if math.IsNaN(s.jobs[a.Job].Start) {
		s.jobs[a.Job].Start = st.Now
	}
	for _, g := range a.GPUs {
		if len(st.OnGPU[g]) == 0 {
			s.busySince[g] = st.Now
		}
		st.OnGPU[g] = append(st.OnGPU[g], a.Job)
	}
	st.Running, s.stays, s.due = append(st.Running, running), append(s.stays, stay), append(s.due, due)
	s.account(a.GPUs)
	if partner >= 0 {
		s.pair(s.find(partner), a.Job)
	}
	s.crowded = s.crowded || stay.spread
	if s.crowded {
		s.network()
	}
	return nil
}

// pair changes the partner of a running job (-1: none), and its speed accordingly.
func (s *Sim) pair(i, partner int) {
	r, a := &s.state.Running[i], &s.stays[i]
	r.Partner = partner
	a.base = s.state.Rate(r.Job, r.GPUs, partner)
	if a.spread {
		s.crowded = true // network sets the speed
		return
	}
	s.pace(i, a.base)
}

func (s *Sim) stop(a scheduler.Action) error {
	i := s.find(a.Job)
	if i < 0 {
		return &ActionError{a, "the job is not running"}
	}
	st, y := &s.state, &s.stays[i]
	switch {
	case y.phase == saving:
		return &ActionError{a, "the job is already stopping"}
	case s.due[i] <= st.Now:
		return &ActionError{a, "the job finishes at this time"}
	}
	s.decisions++
	s.jobs[a.Job].Stops++
	save := st.Workload.Kinds[st.Workload.Jobs[a.Job].Kind].Save
	s.progress(i)
	if y.phase == loading || save == 0 {
		s.resumes[a.Job] = s.resumes[a.Job] || y.phase == computing
		s.leave(i, scheduler.Stopped)
		s.enqueue(a.Job)
	} else {
		y.phase = saving
		st.Running[i].Speed, st.Running[i].Leaves = 0, st.Now+save
		s.due[i] = st.Now + save
		s.crowded = s.crowded || y.spread
	}
	if s.crowded {
		s.network()
	}
	return nil
}

// leave frees the GPUs of a running job.
func (s *Sim) leave(i int, how scheduler.End) {
	st := &s.state
	r := st.Running[i]
	if seg := s.stays[i].segment; seg >= 0 {
		s.segments[seg].To, s.segments[seg].Ended = st.Now, how
	}
	s.crowded = s.crowded || s.stays[i].spread
	for _, g := range r.GPUs {
		on := st.OnGPU[g]
		if len(on) == 2 && on[0] == r.Job {
			on[0] = on[1]
		}
		st.OnGPU[g] = on[:len(on)-1]
		if len(on) == 1 {
			s.busy[g] += st.Now - s.busySince[g]
			s.busySince[g] = math.NaN()
		}
	}
	s.account(r.GPUs)
	s.drop(i)
	if r.Partner >= 0 {
		s.pair(s.find(r.Partner), -1)
	}
}

// drop removes entry i of the running jobs.
func (s *Sim) drop(i int) {
	st := &s.state
	s.pool = append(s.pool, st.Running[i].GPUs)
	n := len(st.Running) - 1
	copy(st.Running[i:], st.Running[i+1:])
	copy(s.stays[i:], s.stays[i+1:])
	copy(s.due[i:], s.due[i+1:])
	st.Running, s.stays, s.due = st.Running[:n], s.stays[:n], s.due[:n]
}

// slice returns an empty slice for the GPUs of a job.
func (s *Sim) slice() []int {
	if n := len(s.pool); n > 0 {
		v := s.pool[n-1]
		s.pool = s.pool[:n-1]
		return v[:0]
	}
	return nil
}

// account computes the free CPU cores and memory on the machines of GPUs. It always sums the requests of all jobs, so
// that rounding errors do not accumulate.
func (s *Sim) account(gpus []int) {
	st := &s.state
	for i, g := range gpus {
		m := st.Cluster.GPUs[g].Machine
		if i > 0 && m == st.Cluster.GPUs[gpus[i-1]].Machine {
			continue
		}
		machine := &st.Cluster.Machines[m]
		cpus, memory := 0.0, 0.0
		for _, h := range machine.GPUs {
			for _, job := range st.OnGPU[h] {
				cpus += st.Workload.Jobs[job].CPUs
				memory += st.Workload.Jobs[job].Memory
			}
		}
		st.FreeCPUs[m], st.FreeMem[m] = max(0, machine.CPUs-cpus), max(0, machine.Memory-memory)
	}
}
