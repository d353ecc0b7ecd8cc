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
	gpus := append(s.slice(), a.GPUs...)
	stay := stay{phase: computing, spread: st.Cluster.Spread(a.GPUs), gpus: gpus, speed: speed, base: speed,
		anchor: st.Now, remaining: work, saved: work, segment: -1}
	running := scheduler.Running{Job: a.Job, GPUs: gpus, Since: st.Now, Speed: speed, Remaining: work, Ready: st.Now,
		Leaves: math.Inf(1), Partner: partner, Order: s.journal.Start(a.Job)}
	due := st.Now + work/speed
	if s.resumes[a.Job] && kind.Load > 0 {
		stay.phase, stay.speed, running.Speed, running.Ready = loading, 0, 0, st.Now+kind.Load
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
		s.journal.GPU(g)
	}
	if n := len(st.Running); cap(st.Running) == n { // removals moved the list to the end of its buffer
		copy(s.running, st.Running)
		st.Running = s.running[:n]
	}
	st.Running = append(st.Running, running)
	s.stays[a.Job] = stay
	s.agenda.set(a.Job, due)
	s.state.Account(a.GPUs)
	if partner >= 0 {
		s.pair(partner, a.Job)
	}
	if stay.spread {
		s.send(a.Job, true)
		s.touch(a.Job)
	}
	s.network()
	return nil
}

// pair changes the partner of a running job (-1: none), and its speed accordingly.
func (s *Sim) pair(job, partner int) {
	a := &s.stays[job]
	s.state.Running[s.find(job)].Partner = partner
	s.journal.Job(job)
	a.base = s.state.Rate(job, a.gpus, partner)
	if a.spread { // network sets the speed, because its partner uses the same machines
		return
	}
	s.pace(job, a.base)
}

func (s *Sim) stop(a scheduler.Action) error {
	if a.Job < 0 || a.Job >= len(s.stays) || s.find(a.Job) < 0 {
		return &ActionError{a, "the job is not running"}
	}
	st, y := &s.state, &s.stays[a.Job]
	switch {
	case y.phase == saving:
		return &ActionError{a, "the job is already stopping"}
	case s.agenda.at[a.Job] <= st.Now:
		return &ActionError{a, "the job finishes at this time"}
	}
	s.decisions++
	s.jobs[a.Job].Stops++
	save := st.Workload.Kinds[st.Workload.Jobs[a.Job].Kind].Save
	s.progress(a.Job)
	if y.phase == loading || save == 0 {
		s.resumes[a.Job] = s.resumes[a.Job] || y.phase == computing
		s.leave(a.Job, scheduler.Stopped)
		s.enqueue(a.Job)
	} else {
		y.phase = saving
		s.setSpeed(a.Job, 0)
		st.Running[s.find(a.Job)].Leaves = st.Now + save
		s.agenda.set(a.Job, st.Now+save)
		s.touch(a.Job)
	}
	s.network()
	return nil
}

// leave frees the GPUs of a running job.
func (s *Sim) leave(job int, how scheduler.End) {
	st, a := &s.state, &s.stays[job]
	i := s.find(job)
	r := st.Running[i]
	if seg := a.segment; seg >= 0 {
		s.segments[seg].To, s.segments[seg].Ended = st.Now, how
	}
	if a.spread {
		s.touch(job)
		s.send(job, false)
	}
	s.journal.Job(job)
	s.agenda.remove(job)
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
		s.journal.GPU(g)
	}
	s.state.Account(r.GPUs)
	s.drop(i)
	if r.Partner >= 0 {
		s.pair(r.Partner, -1)
	}
}

// drop removes entry i of the running jobs.
func (s *Sim) drop(i int) {
	st := &s.state
	v := st.Running
	s.pool = append(s.pool, v[i].GPUs)
	if i < len(v)/2 {
		copy(v[1:i+1], v[:i])
		st.Running = v[1:]
		return
	}
	copy(v[i:], v[i+1:])
	st.Running = v[:len(v)-1]
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
