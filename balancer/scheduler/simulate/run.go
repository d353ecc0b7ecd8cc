package simulate

import (
	"context"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// StalledError reports a run in which no further event can occur and the policy does not start the remaining jobs.
type StalledError struct {
	Policy    string
	Queue     []int  // jobs that wait
	First     string // name of the first
	GPUs      int    // that the first job needs
	Available int    // GPUs of the cluster that are available
	Of        int    // GPUs of the cluster
	Now       float64
	Cause     string // why the policy does not start the first job; "" if the policy states no reason
}

func (e *StalledError) Error() string {
	wait, plural := "1 job waits", ""
	if n := len(e.Queue); n > 1 {
		wait = fmt.Sprintf("%d jobs wait", n)
	}
	if e.GPUs > 1 {
		plural = "s"
	}
	text := fmt.Sprintf("policy %s can start no waiting job, and no further event can occur: at %.6g s, %s, and %d of %d GPUs are available; the first job, %d (%q), needs %d GPU%s",
		e.Policy, e.Now, wait, e.Available, e.Of, e.Queue[0], e.First, e.GPUs, plural)
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	return text
}

// EndlessError reports a run that was ended because no job finished for too many decisions. Either the policy starts
// and stops jobs without effect, or the work of the jobs needs more decisions than a run may have.
type EndlessError struct {
	Policy  string
	Actions int // starts and stops since a job last finished
	Rounds  int // waits without an event since a job last finished
	Now     float64
}

func (e *EndlessError) Error() string {
	what := fmt.Sprintf("%d starts and stops", e.Actions)
	if e.Rounds > maxRounds {
		what = fmt.Sprintf("%d rounds", e.Rounds)
	}
	return fmt.Sprintf("policy %s: no job finished during the last %s, at a simulated time of %.4g s; check the work of the jobs and the speeds of their kinds, or choose another policy",
		e.Policy, what, e.Now)
}

// NeverError reports a job whose end is later than every time that a float64 can express.
type NeverError struct {
	Policy string
	Job    int
	Name   string
	Steps  float64 // that remain
	Speed  float64 // steps/s
}

func (e *NeverError) Error() string {
	return fmt.Sprintf("policy %s: job %d (%q) never ends: it has %.4g steps left at %.4g steps/s; check the work of the job and the speeds of its kind",
		e.Policy, e.Job, e.Name, e.Steps, e.Speed)
}

// maxIdle limits how often a policy may wait for a time while no job runs and no further event can occur.
const maxIdle = 1000

// maxActions limits the actions at one time: a policy that starts and stops jobs forever is faulty.
const maxActions = 1000

// maxFruitless limits the actions since a job last finished. A faulty policy moves jobs forever. A fair policy may swap
// all jobs of a large cluster for months of simulated time, so the limit is high.
const maxFruitless = 10_000_000

// maxRounds limits the waits without an event since a job last finished. With this limit, policy maxmin with rounds of
// 360 s can run the longest job that it accepts, if the job runs alone. If several jobs share GPUs alternately,
// maxFruitless or maxRounds can end the run earlier.
const maxRounds = 3_000_000

// Run runs a policy until all jobs have finished. With a [*StalledError], Run also returns the result up to this time.
// If the end of a job is beyond the range of time, the error is a [*NeverError]. If no job finishes for millions of
// decisions, the error is an [*EndlessError].
func Run(p scheduler.Policy, c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds,
	o Options) (*scheduler.Result, error) {
	return RunContext(context.Background(), p, c, w, speeds, o)
}

// RunContext is like [Run], but a canceled context ends the run between two decisions, with the cause of ctx as the
// error.
func RunContext(ctx context.Context, p scheduler.Policy, c *scheduler.Cluster, w *scheduler.Workload,
	speeds scheduler.Speeds, o Options) (*scheduler.Result, error) {
	s, err := New(c, w, speeds, o)
	if err != nil {
		return nil, err
	}
	return s.RunContext(ctx, p)
}

// Run runs a policy from the current state to the end.
func (s *Sim) Run(p scheduler.Policy) (*scheduler.Result, error) {
	return s.RunContext(context.Background(), p)
}

// RunContext is like [Sim.Run], but a canceled context ends the run between two decisions, with the cause of ctx as the
// error.
func (s *Sim) RunContext(ctx context.Context, p scheduler.Policy) (*scheduler.Result, error) {
	st := &s.state
	if err := p.Reset(st.Cluster, st.Workload, st.Speeds); err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.Name(), err)
	}
	if v, ok := p.(scheduler.Incremental); ok && v.Incremental() {
		s.lazy, st.StepsOf = true, s.steps
		defer func() {
			s.lazy, st.StepsOf = false, nil
			s.settle()
		}()
	}
	idle, limit := 0, maxActions+4*len(st.Workload.Jobs)
	finished, before, rounds := st.Finished, s.decisions, 0
	for !s.Done() {
		if st.Finished > finished {
			finished, before, rounds = st.Finished, s.decisions, 0
		} else if actions := s.decisions - before; actions > maxFruitless || rounds > maxRounds {
			return nil, &EndlessError{Policy: p.Name(), Actions: actions, Rounds: rounds, Now: st.Now}
		}
		until, err := s.decide(ctx, p, limit)
		if err != nil {
			return nil, err
		}
		if len(st.Running) > 0 || !math.IsInf(s.upcoming(), 1) {
			idle = 0
		} else {
			idle++
		}
		events := s.events
		if idle > maxIdle || !s.Next(until) {
			if s.Done() {
				break
			}
			if err := s.never(p); err != nil {
				return nil, err
			}
			return s.Result(p.Name()), s.stalled(p)
		}
		if s.events == events {
			rounds++
		}
	}
	return s.Result(p.Name()), nil
}

// never returns the error of a job that runs but never ends, or nil if no job runs.
func (s *Sim) never(p scheduler.Policy) error {
	st := &s.state
	if len(st.Running) == 0 {
		return nil
	}
	r := &st.Running[0]
	st.Remaining[r.Job] = s.steps(r.Job)
	speed := s.stays[r.Job].base
	if r.Speed > 0 {
		speed = r.Speed
	}
	return &NeverError{Policy: p.Name(), Job: r.Job, Name: st.Workload.Jobs[r.Job].Name, Steps: st.Remaining[r.Job],
		Speed: speed}
}

// stalled describes a run that cannot continue. No job runs.
func (s *Sim) stalled(p scheduler.Policy) *StalledError {
	st := &s.state
	first := &st.Workload.Jobs[st.Queue[0]]
	e := &StalledError{Policy: p.Name(), Queue: append([]int(nil), st.Queue...), First: first.Name, GPUs: first.GPUs,
		Of: len(st.Up), Now: st.Now}
	for _, up := range st.Up {
		if up {
			e.Available++
		}
	}
	e.Cause = scheduler.WhyWaits(p, st, st.Queue[0])
	return e
}

// decide applies actions until the policy waits, and returns the time at which the policy decides again.
func (s *Sim) decide(ctx context.Context, p scheduler.Policy, limit int) (until float64, err error) {
	for range limit {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		default:
		}
		a := p.Decide(&s.state)
		if a.Verb == scheduler.Wait {
			if a.Until == 0 {
				return math.Inf(1), nil
			}
			if !(a.Until > s.state.Now) {
				return 0, fmt.Errorf("policy %s: got a wait until %v s at %v s, want a later time", p.Name(), a.Until,
					s.state.Now)
			}
			return a.Until, nil
		}
		if err := s.Apply(a); err != nil {
			return 0, fmt.Errorf("policy %s at %v s: %w", p.Name(), s.state.Now, err)
		}
	}
	return 0, fmt.Errorf("policy %s: more than %d actions at %v s", p.Name(), limit, s.state.Now)
}
