package simulate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// plain contains the speeds of one kind: 1 step/s for each GPU, half of it over several machines, and 0.75 of it in a
// pair.
type plain struct{}

func (plain) Alone(_, _, n int, spread bool) float64 {
	if spread {
		return float64(n) / 2
	}
	return float64(n)
}
func (plain) Shared(_, _, _, n int) (float64, bool)  { return 0.75 * float64(n), true }
func (plain) Mixed(int, []int, bool) (float64, bool) { return 0, false }

// boxes returns a cluster of one type of GPU. Each machine has 8 cores, 100 bytes of memory and a link of 10 bytes/s.
func boxes(machines, gpus int) *scheduler.Cluster {
	return workload.NewCluster([]scheduler.GPUType{{Name: "gpu", Memory: 10, Bandwidth: 1, Compute: 1}},
		workload.MachineSpec{Count: machines, GPUs: gpus, CPUs: 8, Memory: 100, Network: 10})
}

func jobs(list ...scheduler.Job) *scheduler.Workload {
	return &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "kind", GPUMemory: 4, Save: 2, Load: 3}}, Jobs: list}
}

func open(t *testing.T, c *scheduler.Cluster, w *scheduler.Workload, o simulate.Options) *simulate.Sim {
	t.Helper()
	s, err := simulate.New(c, w, plain{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, s *simulate.Sim, job int, gpus ...int) {
	t.Helper()
	if err := s.Apply(scheduler.Action{Verb: scheduler.Start, Job: job, GPUs: gpus}); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, s *simulate.Sim, job int) {
	t.Helper()
	if err := s.Apply(scheduler.Action{Verb: scheduler.Stop, Job: job}); err != nil {
		t.Fatal(err)
	}
}

// next advances the simulation to the next event, and checks its time.
func next(t *testing.T, s *simulate.Sim, want float64) {
	t.Helper()
	if !s.Next(math.Inf(1)) {
		t.Fatalf("no event, want one at %v s", want)
	}
	if got := s.State().Now; math.Abs(got-want) > 1e-12*want {
		t.Fatalf("event at %v s, want %v s", got, want)
	}
}

func TestJobsThatShareGPUs(t *testing.T) {
	s := open(t, boxes(1, 2), jobs(scheduler.Job{Work: 20, GPUs: 2}, scheduler.Job{Arrival: 4, Work: 6, GPUs: 2}),
		simulate.Options{})
	start(t, s, 0, 0, 1) // runs at 2 steps/s
	next(t, s, 4)
	start(t, s, 1, 0, 1) // job 0 has done 8 steps; now both run at 1.5 steps/s
	next(t, s, 8)        // job 1 has ended; job 0 has 6 steps left
	if got := s.State().Remaining[0]; got != 6 {
		t.Errorf("remaining: got %v steps, want 6", got)
	}
	next(t, s, 11)
	if !s.Done() {
		t.Error("the run is not done")
	}
	r := s.Result("test")
	if r.Jobs[0].Finish != 11 || r.Jobs[1].Finish != 8 || r.GPUHours[0] != 11.0/3600 || r.Decisions != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestStopAndStartCostExactly(t *testing.T) {
	s := open(t, boxes(1, 1), jobs(scheduler.Job{Work: 20, GPUs: 1}, scheduler.Job{Arrival: 5, Work: 1, GPUs: 1}),
		simulate.Options{Record: true})
	start(t, s, 0, 0)
	next(t, s, 5)
	stop(t, s, 0) // has 15 steps left, and saves until 7 s
	if len(s.State().Queue) != 1 || s.State().Running[0].Leaves != 7 {
		t.Errorf("while saving: got queue %v, running %+v", s.State().Queue, s.State().Running)
	}
	next(t, s, 7)
	if !slices.Equal(s.State().Queue, []int{0, 1}) {
		t.Errorf("after saving: got queue %v, want [0 1]", s.State().Queue)
	}
	start(t, s, 1, 0)
	next(t, s, 8)
	start(t, s, 0, 0) // loads until 11 s
	next(t, s, 11)
	stop(t, s, 0) // The job loads until 11 s and computes from then on. It has computed no step yet, but it must save.
	next(t, s, 13)
	start(t, s, 0, 0) // loads until 16 s
	if !s.Next(14) || s.State().Now != 14 {
		t.Error("Next(14) did not stop at 14 s")
	}
	stop(t, s, 0) // the job still loads, so it frees its GPU immediately
	start(t, s, 0, 0)
	next(t, s, 17)
	next(t, s, 32)
	r := s.Result("test")
	if r.Jobs[0].Stops != 3 || r.Jobs[0].Finish != 32 || len(r.Segments) != 5 || r.Segments[0].To != 7 ||
		r.Segments[0].Ended != scheduler.Stopped {
		t.Errorf("got %+v", r)
	}
}

func TestFailureLosesWorkSinceTheCheckpoint(t *testing.T) {
	w := jobs(scheduler.Job{Work: 20, GPUs: 1}, scheduler.Job{Work: 20, GPUs: 1})
	changes := []simulate.Change{{At: 2, GPU: 1}, {At: 9.5, GPU: 0}, {At: 10, GPU: 1, Up: true}}
	s := open(t, boxes(1, 2), w, simulate.Options{Changes: changes, Checkpoint: 4})
	start(t, s, 0, 0)
	next(t, s, 2)
	if err := s.Apply(scheduler.Action{Verb: scheduler.Start, Job: 1, GPUs: []int{1}}); err == nil {
		t.Error("started a job on a GPU that is not available")
	}
	start(t, s, 1, 0) // both run at 0.75 steps/s from 2 s on
	next(t, s, 9.5)   // job 0: checkpoints at 4 and 8 s, 20-2-6*0.75 = 13.5; job 1: checkpoint at 6 s, 20-3 = 17
	if got := s.State().Remaining; got[0] != 13.5 || got[1] != 17 {
		t.Errorf("remaining after the failure: got %v, want [13.5 17]", got)
	}
	next(t, s, 10)
	start(t, s, 0, 1)
	next(t, s, 13) // loaded
	next(t, s, 26.5)
	start(t, s, 1, 1)
	next(t, s, 29.5)
	next(t, s, 46.5)
	r := s.Result("test")
	if r.Available[0] != 9.5/3600 || math.Abs(r.Available[1]-38.5/3600) > 1e-15 || r.Jobs[0].Stops != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestNetworkIsShared(t *testing.T) {
	w := jobs(scheduler.Job{Work: 30, GPUs: 2, Network: 10}, scheduler.Job{Work: 15, GPUs: 2, Network: 10})
	s := open(t, boxes(2, 2), w, simulate.Options{})
	start(t, s, 0, 0, 2) // runs at 1 step/s over two machines, whose links can serve one job
	if got := s.State().Running[0].Speed; got != 1 {
		t.Errorf("speed: got %v, want 1", got)
	}
	start(t, s, 1, 1, 3) // each job now runs at 0.5 steps/s
	next(t, s, 30)
	next(t, s, 45)
	if got := s.Result("").Jobs[0].Finish; got != 45 {
		t.Errorf("finish: got %v s, want 45 s", got)
	}
}

func TestImpossibleActions(t *testing.T) {
	w := jobs(scheduler.Job{Work: 1, GPUs: 1, CPUs: 5}, scheduler.Job{Work: 1, GPUs: 1, CPUs: 5},
		scheduler.Job{Work: 1, GPUs: 1, Memory: 200e-9, CPUs: 1},
		scheduler.Job{Arrival: 9, Work: 1, GPUs: 2})
	s := open(t, boxes(1, 2), w, simulate.Options{})
	start(t, s, 0, 0)
	for name, a := range map[string]scheduler.Action{
		"CPUs":         {Verb: scheduler.Start, Job: 1, GPUs: []int{1}},
		"not arrived":  {Verb: scheduler.Start, Job: 3, GPUs: []int{0, 1}},
		"runs already": {Verb: scheduler.Start, Job: 0, GPUs: []int{1}},
		"no such GPU":  {Verb: scheduler.Start, Job: 2, GPUs: []int{2}},
		"count":        {Verb: scheduler.Start, Job: 2, GPUs: []int{0, 1}},
		"stop":         {Verb: scheduler.Stop, Job: 1},
		"verb":         {Verb: 9},
	} {
		var want *simulate.ActionError
		if err := s.Apply(a); !errors.As(err, &want) {
			t.Errorf("%s: got %v, want an ActionError", name, err)
		}
	}
	if got := len(s.State().Running); got != 1 {
		t.Errorf("got %d running jobs, want 1", got)
	}
}

func TestUnplaceableJobs(t *testing.T) {
	for name, j := range map[string]scheduler.Job{
		"GPUs": {Work: 1, GPUs: 5}, "CPUs": {Work: 1, GPUs: 1, CPUs: 9}, "CPUs of a gang": {Work: 1, GPUs: 4, CPUs: 5},
		"memory": {Work: 1, GPUs: 1, Memory: 101},
	} {
		var want *scheduler.UnplaceableError
		if _, err := simulate.New(boxes(2, 2), jobs(j), plain{}, simulate.Options{}); !errors.As(err, &want) {
			t.Errorf("%s: got %v, want an UnplaceableError", name, err)
		}
	}
}

func TestStalledRun(t *testing.T) {
	p, _ := scheduler.New("fcfs", scheduler.Options{})
	_, err := simulate.Run(p, boxes(1, 1), jobs(scheduler.Job{Work: 5, GPUs: 1}), plain{},
		simulate.Options{Changes: []simulate.Change{{At: 1}}})
	var want *simulate.StalledError
	if !errors.As(err, &want) {
		t.Errorf("got %v, want a StalledError", err)
	}
}

// slow runs every job at the smallest speed that a float64 can express.
type slow struct{ plain }

func (slow) Alone(_, _, _ int, _ bool) float64 { return 1e-320 }

func TestAJobThatNeverEndsIsAnError(t *testing.T) {
	for _, name := range []string{"fcfs", "srf"} {
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = simulate.Run(p, boxes(1, 1), jobs(scheduler.Job{Work: 5, GPUs: 1}), slow{}, simulate.Options{})
		var never *simulate.NeverError
		if !errors.As(err, &never) || never.Job != 0 || never.Steps != 5 || never.Speed != 1e-320 {
			t.Errorf("%s: got %v, want a NeverError", name, err)
		}
	}
}

func TestRunEndsAtItsLimit(t *testing.T) {
	p, _ := scheduler.New("fcfs", scheduler.Options{Explain: true})
	r, err := simulate.Run(p, boxes(1, 1), jobs(scheduler.Job{Work: 5, GPUs: 1}, scheduler.Job{Work: 5, GPUs: 1}),
		plain{}, simulate.Options{Until: 7, Record: true})
	if err != nil || r.End != 7 || r.Jobs[0].Finish != 5 || !math.IsNaN(r.Jobs[1].Finish) ||
		r.Segments[1].Ended != scheduler.Unfinished || r.Segments[0].Reason == "" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// restless is a policy that stops its job as soon as it computes.
type restless struct{ gpu [1]int }

func (*restless) Name() string { return "restless" }
func (*restless) Reset(*scheduler.Cluster, *scheduler.Workload, scheduler.Speeds) error {
	return nil
}
func (p *restless) Decide(s *scheduler.State) scheduler.Action {
	switch {
	case len(s.Queue) > 0:
		return scheduler.Action{Verb: scheduler.Start, Job: s.Queue[0], GPUs: p.gpu[:]}
	case s.Running[0].Speed > 0 && s.Running[0].Ready == s.Now:
		return scheduler.Action{Verb: scheduler.Stop, Job: s.Running[0].Job}
	}
	return scheduler.Action{}
}

func TestRestlessPolicyIsAnError(t *testing.T) {
	_, err := simulate.Run(&restless{}, boxes(1, 1), jobs(scheduler.Job{Work: 5, GPUs: 1}), plain{}, simulate.Options{})
	var endless *simulate.EndlessError
	if !errors.As(err, &endless) || endless.Actions <= endless.Rounds ||
		!strings.Contains(err.Error(), "no job finished during the last 10000001 starts and stops") {
		t.Errorf("got %v, want an EndlessError of starts and stops", err)
	}
}

// idler is a policy that starts its job, and then decides every second.
type idler struct{ restless }

func (p *idler) Decide(s *scheduler.State) scheduler.Action {
	if len(s.Queue) > 0 {
		return p.restless.Decide(s)
	}
	return scheduler.Action{Until: s.Now + 1}
}

func TestTooManyRoundsAreAnError(t *testing.T) {
	run := func(work float64) error {
		_, err := simulate.Run(&idler{}, boxes(1, 1), jobs(scheduler.Job{Work: work, GPUs: 1}), plain{},
			simulate.Options{})
		return err
	}
	var endless *simulate.EndlessError
	if err := run(1e300); !errors.As(err, &endless) ||
		!strings.Contains(err.Error(), "no job finished during the last 3000001 rounds") {
		t.Errorf("got %v, want an EndlessError of rounds", err)
	}
	if err := run(1e5); err != nil {
		t.Error(err)
	}
}

// quitter is a policy that cancels the run after some decisions.
type quitter struct {
	restless
	decisions, after int
	cancel           context.CancelCauseFunc
}

var errQuit = errors.New("quit")

func (p *quitter) Decide(s *scheduler.State) scheduler.Action {
	if p.decisions++; p.decisions == p.after {
		p.cancel(errQuit)
	}
	return p.restless.Decide(s)
}

// After its context is canceled, a run must end at the next decision, even if many actions follow at the same time.
func TestCanceledRunEnds(t *testing.T) {
	for _, after := range []int{1, 2, 1000} {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := &quitter{after: after, cancel: cancel}
		_, err := simulate.RunContext(ctx, p, boxes(1, 1), jobs(scheduler.Job{Work: 5, GPUs: 1}), plain{},
			simulate.Options{})
		if !errors.Is(err, errQuit) || p.decisions != after {
			t.Errorf("canceled in decision %d: got %v after %d decisions, want the cause after %d", after, err,
				p.decisions, after)
		}
	}
}

// Jobs that the network slows down must not move between sets of GPUs forever.
func TestGangLeavesJobsThatTheNetworkLimits(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 4, Type: workload.Volta, GPUs: 1, CPUs: 32, Memory: 1 << 38, Network: 1e7})
	w := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{{Kind: 3, Work: 1e4, GPUs: 2, Network: 5e8}}}
	p, _ := scheduler.New("gang", scheduler.Options{})
	r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil || r.Jobs[0].Stops != 0 {
		t.Errorf("got %+v, %v, want a run without stops", r, err)
	}
}
