package dqn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Problem describes the episodes that a network is trained on.
type Problem struct {
	Encoding Encoding `json:"encoding"`
	// Arrivals are the kinds of episodes; each episode draws one. Their seeds are ignored; the seed of the episode is
	// used.
	Arrivals []workload.Arrivals `json:"arrivals"`
	// Lambda is the cost of a second in which a GPU is idle, relative to a second of a job in the system; 0 < Lambda < 1.
	Lambda float64 `json:"lambda"`
	// Horizon is the time in seconds after which a cost counts 1/e.
	Horizon float64 `json:"horizon"`
	// Shaped subtracts from the cost the running time of each job alone on its best type of GPU, which no decision can
	// change. The cost of a job is then its excess over this time, counted when the job starts. The sum of the rewards
	// of an episode changes by a constant that depends only on its jobs, but the variance of the rewards is much
	// smaller.
	Shaped bool `json:"shaped"`
	// Caution is the margin of Policy.SetCaution that the trained policy starts with. The training does not use it.
	Caution float64 `json:"caution"`
}

// DefaultProblem is the problem of the figures in docs/benchmarks/scheduling.md: episodes of 60 jobs at loads from 0.7
// to 1.2.
func DefaultProblem() Problem {
	p := Problem{Encoding: DefaultEncoding(), Lambda: 0.1, Horizon: 6000, Shaped: true}
	for _, load := range []float64{0.7, 0.8, 0.9, 1, 1.2} {
		p.Arrivals = append(p.Arrivals, workload.Arrivals{Jobs: 60, Load: load})
	}
	return p
}

func (p Problem) check() error {
	if len(p.Arrivals) == 0 {
		return errors.New("problem: got no kinds of episodes, want at least 1")
	}
	if !(p.Lambda > 0 && p.Lambda < 1) {
		return fmt.Errorf("problem: lambda: got %v, want a number between 0 and 1", p.Lambda)
	}
	if !(p.Horizon > 0) {
		return fmt.Errorf("problem: horizon: got %v s, want a number above 0", p.Horizon)
	}
	return p.Encoding.check()
}

// scaleUnits is the unit of rewards relative to Encoding.Unit: rewards of a decision are then of order 0.1.
const scaleUnits = 10

// cluster is an Environment: the simulator plays an episode of a Problem.
//
// The reward of a step is -(completion time + lambda · idle GPU time), divided by 10 Unit. It counts the time of the
// step: once for each job in the system, and lambda times for each idle GPU. The sum over an episode is therefore
// exactly the sum of all completion times and all weighted idle times. The environment skips states in which only one
// action is possible.
type cluster struct {
	problem  Problem
	setup    *workload.Setup
	encoder  *encoder
	workload scheduler.Workload
	sim      *simulate.Sim
	seen     *Observation
	random   *rand.PCG

	counted   int     // jobs whose arrival the potential counts
	potential float64 // seconds; see account
	// Sums of the episode, for tests and reports.
	completion float64 // job seconds in the system
	idle       float64 // GPU seconds
	constant   float64 // seconds that Shaped subtracts
}

// NewEnvironments returns n equal environments of a problem on the cluster of a setup.
func NewEnvironments(n int, p Problem, setup *workload.Setup) ([]Environment, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var out []Environment
	for range n {
		e := &cluster{problem: p, setup: setup, seen: NewObservation(p.Encoding.Shape()), random: rand.NewPCG(0, 0)}
		var err error
		if e.encoder, err = newEncoder(p.Encoding); err != nil {
			return nil, err
		}
		if err := e.Reset(0); err != nil { // reports faults of the problem before the training
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (e *cluster) Shape() Shape { return e.encoder.shape }

func (e *cluster) Reset(seed uint64) error {
	e.random.Seed(seed, 0x657069736f6465)
	a := e.problem.Arrivals[e.random.Uint64()%uint64(len(e.problem.Arrivals))]
	a.Seed = seed
	if err := workload.GenerateInto(&e.workload, e.setup, a); err != nil {
		return err
	}
	if e.sim == nil {
		var err error
		if e.sim, err = simulate.New(e.setup.Cluster, &e.workload, e.setup.Speeds, simulate.Options{}); err != nil {
			return err
		}
	} else if err := e.sim.Reset(&e.workload); err != nil {
		return err
	}
	if err := e.encoder.reset(e.setup.Cluster, &e.workload, e.setup.Speeds); err != nil {
		return err
	}
	e.counted, e.potential, e.completion, e.idle, e.constant = 0, 0, 0, 0, 0
	e.account()
	_, err := e.pass()
	return err
}

func (e *cluster) Observe(o *Observation) {
	copy(o.State, e.seen.State)
	copy(o.Mask, e.seen.Mask)
}

// Advise implements Adviser.
func (e *cluster) Advise() int {
	if e.encoder.adviser == nil {
		return -1
	}
	return e.encoder.advise()
}

func (e *cluster) Step(action int) (Outcome, error) {
	s := e.sim.State()
	began := s.Now
	cost := 0.0
	if action == e.encoder.shape.Wait() {
		cost = e.advance()
	} else if err := e.sim.Apply(e.encoder.start(s, action)); err != nil {
		return Outcome{}, err
	}
	passed, err := e.pass()
	if err != nil {
		return Outcome{}, err
	}
	cost += passed
	if extra := e.account(); e.problem.Shaped {
		cost += extra
	}
	return Outcome{Reward: -cost / (scaleUnits * e.problem.Encoding.Unit), Discount: math.Exp(-(s.Now - began) / e.problem.Horizon), Done: e.sim.Done()}, nil
}

// pass advances until there is a choice or the episode ends. It returns the cost in seconds.
func (e *cluster) pass() (cost float64, err error) {
	s := e.sim.State()
	for !e.sim.Done() {
		if len(s.Queue) > 0 {
			e.encoder.observe(s, e.seen)
			if e.choice() {
				return cost, nil
			}
			if !e.seen.Mask[e.encoder.shape.Wait()] {
				return cost, fmt.Errorf("at %v s, none of %d waiting jobs can start, and no further event can occur", s.Now, len(s.Queue))
			}
		} else {
			e.encoder.watch(s)
		}
		cost += e.advance()
	}
	return cost, nil
}

// choice reports whether an action other than waiting is possible.
func (e *cluster) choice() bool {
	for _, ok := range e.seen.Mask[:e.encoder.shape.Wait()] {
		if ok {
			return true
		}
	}
	return false
}

// advance goes to the next event and returns the cost of the time until then, in seconds.
func (e *cluster) advance() float64 {
	s := e.sim.State()
	before, jobs, idle := s.Now, s.Arrived-s.Finished, 0
	for gpu, up := range s.Up {
		if up && len(s.OnGPU[gpu]) == 0 {
			idle++
		}
	}
	e.sim.Next(math.Inf(1))
	took := s.Now - before
	e.completion += float64(jobs) * took
	e.idle += float64(idle) * took
	return (float64(jobs) + e.problem.Lambda*float64(idle)) * took
}

// account returns the change of the potential since the last call, in seconds, without the change by new arrivals. The
// potential is the time that all jobs in the system still need: running jobs at their current speeds, waiting jobs
// alone on their best type of GPU.
func (e *cluster) account() float64 {
	s, sum := e.sim.State(), 0.0
	for i := range s.Running {
		sum += s.Left(&s.Running[i])
	}
	for _, job := range s.Queue {
		sum += s.Remaining[job] / e.encoder.best[job]
	}
	change := sum - e.potential
	for ; e.counted < s.Arrived; e.counted++ {
		alone := e.workload.Jobs[e.counted].Work / e.encoder.best[e.counted]
		change -= alone
		e.constant += alone
	}
	e.potential = sum
	return change
}
