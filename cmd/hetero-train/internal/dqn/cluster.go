package dqn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// Problem describes the episodes on which a network is trained.
type Problem struct {
	Encoding Encoding `json:"encoding"`
	// Arrivals lists settings of job arrivals, of which each episode draws one. The seeds in these settings have no
	// effect, because each episode has its own seed.
	Arrivals []workload.Arrivals `json:"arrivals"`
	// Lambda is the ratio of two costs: that of an idle second of a GPU, and that of a second of a job in the system. 0
	// < Lambda < 1.
	Lambda float64 `json:"lambda"`
	// Horizon is the time after which a cost is discounted to 1/e. Its unit is the geometric mean of the running times
	// of the episode's jobs. The running time of a job is its time alone on its best type of GPU.
	Horizon float64 `json:"horizon"`
	// Shaped subtracts from the cost of each job its running time alone on its best type of GPU, which no decision can
	// change. The cost of a job is then its excess over this time, counted when the job starts. With Shaped, the sum of
	// the rewards of an episode is larger by a constant that depends only on the jobs of the episode. The rewards vary
	// much less than without Shaped.
	Shaped bool `json:"shaped"`
	// Caution is a margin in units of the reward. The trained policy follows the baseline of its encoding, unless
	// another action is better. The value of this action must exceed that of the baseline's action by at least this
	// margin. With margin 0, the policy is greedy. With +Inf, it equals the baseline. With any margin, the policy also
	// follows the baseline
	//
	//   - in states with more jobs than occurred in training (Progress.Jobs), because values are sums over jobs, and
	//     the network was not trained on the larger sums of more jobs
	//   - instead of waiting while more than maxIdle GPUs are free
	//
	// Choose the margin on jobs that neither the training run nor a later comparison uses. It has no effect on
	// training.
	Caution float64 `json:"caution"`
	// Random is the fraction of episodes on random clusters (workload.Random) instead of the cluster of the setup. A
	// larger fraction prepares the network better for other clusters.
	Random float64 `json:"random"`
	// Window is the number of jobs of an episode, for each 16 GPUs, if the jobs come from a list. An episode is then a
	// random part of the list.
	Window int `json:"window"`
	// Input identifies the setup and the lists of jobs (Digest). A resumed training run uses it to detect a checkpoint
	// of another training run.
	Input string `json:"input"`
}

// Source contains the cluster and the jobs from which a Problem draws its episodes.
type Source struct {
	Setup *workload.Setup
	Lists []*scheduler.Workload // nil: the jobs are generated from the setup and Problem.Arrivals
}

// Digest identifies a source: equal sources have equal digests.
func (s *Source) Digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%+v\n%+v\n%+v\n%+v\n%+v\n", *s.Setup.Cluster, s.Setup.Kinds, s.Setup.Speeds.Kinds,
		s.Setup.Speeds.Pairs, s.Setup.Shapes)
	for _, list := range s.Lists {
		// keep the digest of a list without estimates the same as in versions that had no estimates
		fmt.Fprintf(h, "%s\n", strings.ReplaceAll(fmt.Sprintf("%+v", *list), " Estimate:0 Error:0", ""))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// DefaultProblem returns the problem with which the results in docs/benchmarks/scheduling.md were measured. It has
// episodes of 60 jobs for each 16 GPUs at loads from 0.7 to 1.2, half of them on random clusters.
func DefaultProblem() Problem {
	p := Problem{Encoding: DefaultEncoding(), Lambda: 0.1, Horizon: 12, Shaped: true, Caution: 0.1, Random: 0.5,
		Window: 60}
	for _, load := range []float64{0.7, 0.8, 0.9, 1, 1.2} {
		p.Arrivals = append(p.Arrivals, workload.Arrivals{Jobs: 60, Load: load})
	}
	return p
}

// SetAlone removes the baseline: the network decides about all starts, learns no moves of running jobs, and the trained
// policy has no margin. Options.Imitate must be 0.
func (p *Problem) SetAlone() { p.Encoding.Advice, p.Caution = "", 0 }

func (p Problem) check() error {
	if len(p.Arrivals) == 0 {
		return errors.New("problem: got no kinds of episodes, want at least 1")
	}
	if !(p.Lambda > 0 && p.Lambda < 1) {
		return fmt.Errorf("problem: lambda: got %v, want a number between 0 and 1", p.Lambda)
	}
	if !(p.Horizon > 0) {
		return fmt.Errorf("problem: horizon: got %v running times, want a number above 0", p.Horizon)
	}
	if !(p.Random >= 0 && p.Random <= 1) || p.Window < 1 {
		return fmt.Errorf(
			"problem: got a fraction of %v random clusters and %d jobs of an episode, want 0 to 1 and at least 1",
			p.Random, p.Window)
	}
	return p.Encoding.check()
}

// Rewards are divided by scaleUnits units of time. With 10, the reward of a decision is about 0.1.
const scaleUnits = 10

// usualGPUs is the number of GPUs of the cluster for which Arrivals.Jobs and Window state numbers of jobs.
const usualGPUs = 16

// jobsFor returns the number of jobs of an episode on a cluster: in proportion to its GPUs, but at least half of the
// usual number.
func jobsFor(jobs int, c *scheduler.Cluster) int {
	return max(1, jobs/2, jobs*len(c.GPUs)/usualGPUs)
}

// cluster is an Environment that simulates episodes of a Problem.
//
// The reward of a step is -(job time + lambda · idle GPU time), divided by 10 units of time. The time of the step
// counts once for each job in the system, and lambda times for each idle GPU. The sum of an episode's rewards is
// therefore exactly -(sum of all completion times + lambda · sum of all idle times), in these units. The environment
// skips states in which only one action is possible.
type cluster struct {
	problem  Problem
	source   Source
	usual    *simulate.Sim // simulator of the source's cluster
	encoder  *encoder
	workload scheduler.Workload
	sim      *simulate.Sim // simulator of the current episode
	seen     *Observation
	shape    Shape
	random   *rand.PCG

	unit      float64 // geometric mean of the running times of the episode's jobs, s
	counted   int     // number of jobs whose arrival the potential includes
	potential float64 // in s; see account
	// Sums over the episode, for tests and reports.
	completion float64 // time of all jobs in the system, s
	idle       float64 // idle time of all GPUs, s
	constant   float64 // sum of the times that Shaped subtracts, s
}

// Shape returns the size of the observations of the problem's environments. The largest cluster determines it.
func (p Problem) Shape(source Source) Shape {
	rows, slots := Grid(source.Setup.Cluster)
	if p.Random > 0 {
		rows, slots = max(rows, workload.RandomMachines), max(slots, workload.RandomGPUs)
	}
	return p.Encoding.Shape(rows, slots)
}

// NewEnvironments returns n equal environments of a problem.
func NewEnvironments(n int, p Problem, source Source) ([]Environment, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	shape := p.Shape(source)
	var out []Environment
	for range n {
		e := &cluster{problem: p, source: source, shape: shape, seen: NewObservation(shape), random: rand.NewPCG(0, 0)}
		var err error
		if e.encoder, err = newEncoder(p.Encoding, false); err != nil {
			return nil, err
		}
		e.encoder.rows, e.encoder.slots = shape.Rows, shape.Slots
		if err := e.Reset(0); err != nil { // so that faults of the problem are reported before training starts
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (e *cluster) Shape() Shape { return e.shape }

func (e *cluster) Reset(seed uint64) error {
	e.random.Seed(seed, 0x657069736f6465)
	random := rand.New(e.random)
	setup := e.source.Setup
	elsewhere := random.Float64() < e.problem.Random
	if elsewhere {
		setup = workload.Random(seed)
	}
	if !elsewhere && e.source.Lists != nil {
		e.part(random)
	} else {
		a := e.problem.Arrivals[random.IntN(len(e.problem.Arrivals))]
		a.Seed = seed
		a.Jobs = jobsFor(a.Jobs, setup.Cluster)
		if err := workload.GenerateInto(&e.workload, setup, a); err != nil {
			return err
		}
	}
	if err := e.simulation(setup, elsewhere); err != nil {
		return err
	}
	if err := e.encoder.reset(setup.Cluster, &e.workload, setup.Speeds); err != nil {
		return err
	}
	e.unit = 0
	for i := range e.workload.Jobs {
		e.unit += math.Log(e.workload.Jobs[i].Work / e.encoder.best[i])
	}
	e.unit = math.Exp(e.unit / float64(len(e.workload.Jobs)))
	e.counted, e.potential, e.completion, e.idle, e.constant = 0, 0, 0, 0, 0
	e.account()
	_, err := e.pass()
	return err
}

// part copies a random part of a random list of jobs.
func (e *cluster) part(random *rand.Rand) {
	list := e.source.Lists[random.IntN(len(e.source.Lists))]
	n := min(jobsFor(e.problem.Window, e.source.Setup.Cluster), len(list.Jobs))
	from := random.IntN(len(list.Jobs) - n + 1)
	e.workload.Kinds, e.workload.Jobs = list.Kinds, append(e.workload.Jobs[:0], list.Jobs[from:from+n]...)
}

// simulation starts the simulator of an episode. It reuses the simulator of the source's cluster.
func (e *cluster) simulation(setup *workload.Setup, elsewhere bool) (err error) {
	if !elsewhere && e.usual != nil {
		e.sim = e.usual
		return e.sim.Reset(&e.workload)
	}
	if e.sim, err = simulate.New(setup.Cluster, &e.workload, setup.Speeds, simulate.Options{}); err == nil &&
		!elsewhere {
		e.usual = e.sim
	}
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

// Jobs implements Counter.
func (e *cluster) Jobs() int { return jobsIn(e.sim.State()) }

// jobsIn returns the number of jobs in the system: those that wait and those that run.
func jobsIn(s *scheduler.State) int { return s.Arrived - s.Finished }

func (e *cluster) Step(action int) (Outcome, error) {
	s := e.sim.State()
	began := s.Now
	cost := 0.0
	if action == e.shape.Wait() {
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
	return Outcome{Reward: -cost / (scaleUnits * e.unit),
		Discount: math.Exp(-(s.Now - began) / (e.problem.Horizon * e.unit)), Done: e.sim.Done()}, nil
}

// pass advances the simulation until more than one action is possible, or until the episode ends. It returns the cost
// of this time in seconds.
func (e *cluster) pass() (cost float64, err error) {
	s := e.sim.State()
	for !e.sim.Done() {
		if len(s.Queue) > 0 {
			e.encoder.observe(s, e.seen)
			if e.choice() {
				return cost, nil
			}
			if !e.seen.Mask[e.shape.Wait()] {
				return cost, fmt.Errorf("at %v s, none of %d waiting jobs can start, and no further event can occur",
					s.Now, len(s.Queue))
			}
		} else if a := e.encoder.idle(s); a.Verb != scheduler.Wait {
			if err := e.sim.Apply(a); err != nil {
				return cost, err
			}
			continue
		}
		cost += e.advance()
	}
	return cost, nil
}

// choice reports whether an action other than waiting is possible.
func (e *cluster) choice() bool {
	for _, ok := range e.seen.Mask[:e.shape.Wait()] {
		if ok {
			return true
		}
	}
	return false
}

// advance goes to the next event and returns the cost of the time until then, in seconds.
func (e *cluster) advance() float64 {
	s := e.sim.State()
	before, jobs, idle := s.Now, jobsIn(s), 0
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

// account returns the change of the potential since the last call, in seconds, without the change that new arrivals
// cause. The potential is the sum of the times that the jobs in the system still need. For a running job, this is the
// time at its current speed. For a waiting job, it is the time alone on its best type of GPU.
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
