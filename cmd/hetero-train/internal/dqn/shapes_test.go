package dqn

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/optim"
)

// busyState returns a state of the default cluster in which jobs run on three machines and others wait. order[m] is the
// new position of machine m.
func busyState(t *testing.T, order [4]int) (*workload.Setup, *scheduler.Workload, *scheduler.State) {
	t.Helper()
	setup := workload.Default()
	var specs [4]workload.MachineSpec
	for m, typ := range [4]int{workload.Volta, workload.Volta, workload.Turing, workload.Radeon} {
		specs[order[m]] = workload.MachineSpec{Count: 1, Type: typ, GPUs: 4, CPUs: 32, Memory: 1 << 38, Network: 1e9}
	}
	setup.Cluster = workload.NewCluster(setup.Cluster.Types, specs[:]...)
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 12, Load: 1, Burst: 12, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Jobs {
		w.Jobs[i].Arrival, w.Jobs[i].GPUs = 0, 1+i%2
	}
	sim, err := simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Machine of the job, and its GPUs on this machine.
	for job, at := range [][]int{{0, 1}, {0, 2, 3}, {3, 0}, {2, 1, 2}} {
		a := scheduler.Action{Verb: scheduler.Start, Job: job}
		for _, k := range at[1:] {
			a.GPUs = append(a.GPUs, 4*order[at[0]]+k)
		}
		if err := sim.Apply(a); err != nil {
			t.Fatal(err)
		}
	}
	return setup, w, sim.State()
}

// freshNet returns a network with random weights.
func freshNet(t *testing.T, e Encoding) *net {
	t.Helper()
	n, err := openNet(referenceDevice(t), e.Shape(1, 1), Network{Filters: 4, Hidden: 8, Pair: 6}, optim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.initialise(5); err != nil {
		t.Fatal(err)
	}
	return n
}

// encoded returns the observation of a state, with at least the given numbers of rows and slots.
func encoded(t *testing.T, e Encoding, rows, slots int, setup *workload.Setup, w *scheduler.Workload,
	s *scheduler.State) (*encoder, *Observation) {
	t.Helper()
	n, err := newEncoder(e, false)
	if err != nil {
		t.Fatal(err)
	}
	n.rows, n.slots = rows, slots
	if err := n.reset(setup.Cluster, w, setup.Speeds); err != nil {
		t.Fatal(err)
	}
	o := NewObservation(n.shape)
	n.observe(s, o)
	return n, o
}

// valuesOf returns the values of a state's actions, with the encoder and the observation that produced them. The
// observation has at least the given numbers of rows and slots.
func valuesOf(t *testing.T, net *net, e Encoding, rows, slots int, setup *workload.Setup, w *scheduler.Workload,
	s *scheduler.State) ([]float32, *encoder, *Observation) {
	t.Helper()
	n, o := encoded(t, e, rows, slots, setup, w, s)
	p, err := net.newPass(net.online, n.shape, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	p.set(0, o.State)
	if err := p.forward(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(p.value(0)), n, o
}

// allFacts is an encoding with all optional facts.
func allFacts() Encoding {
	e := DefaultEncoding()
	e.Ingested, e.Similarity = true, 256
	return e
}

// If the machines of a cluster are in another order, each action must have the same value, and the policy must take the
// same action.
func TestOrderOfMachinesHasNoEffect(t *testing.T) {
	e := allFacts()
	net := freshNet(t, e)
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	want, n, seen := valuesOf(t, net, e, 1, 1, setup, w, s)
	order := [4]int{3, 1, 2, 0}
	setup, w, s = busyState(t, order)
	got, _, permuted := valuesOf(t, net, e, 1, 1, setup, w, s)
	to := func(action int) int {
		if action >= n.shape.triples() {
			return action
		}
		return action/n.shape.Rows*n.shape.Rows + order[action%n.shape.Rows]
	}
	possible, distinct := 0, map[float32]bool{}
	for action, ok := range seen.Mask {
		if ok != permuted.Mask[to(action)] {
			t.Errorf("action %d: got possible %v, want %v", action, permuted.Mask[to(action)], ok)
		}
		if math.Abs(float64(got[to(action)]-want[action])) > 1e-5 { // tolerance: sums are in another order
			t.Errorf("action %d: got value %v, want %v", action, got[to(action)], want[action])
		}
		if ok {
			possible++
			distinct[want[action]] = true
		}
	}
	if possible < 10 || len(distinct) < 8 {
		t.Errorf("got %d possible actions with %d values, want a state with more choice", possible, len(distinct))
	}
	if a, b := best(want, seen.Mask), best(got, permuted.Mask); to(a) != b {
		t.Errorf("best action: got %d, want %d", b, to(a))
	}
}

// Empty rows and slots must not change the values. A network that was trained on observations with rows for a large
// cluster then makes the same decisions without these rows.
func TestEmptyRowsAndSlotsHaveNoEffect(t *testing.T) {
	e := allFacts()
	net := freshNet(t, e)
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	s.Up[6] = false // an unavailable GPU must have the same effect as a missing one
	want, n, seen := valuesOf(t, net, e, 1, 1, setup, w, s)
	got, padded, large := valuesOf(t, net, e, 9, 11, setup, w, s)
	if n.shape.Rows != 4 || n.shape.Slots != 4 || padded.shape.Rows != 9 || padded.shape.Slots != 11 {
		t.Fatalf("got shapes %+v and %+v", n.shape, padded.shape)
	}
	for action, ok := range seen.Mask {
		other := action - n.shape.Wait() + padded.shape.Wait()
		if action < n.shape.triples() {
			other = action/n.shape.Rows*padded.shape.Rows + action%n.shape.Rows
		}
		if large.Mask[other] != ok || math.Abs(float64(got[other]-want[action])) > 1e-5 {
			t.Errorf("action %d: got possible %v and value %v, want %v and %v", action, large.Mask[other], got[other],
				ok, want[action])
		}
	}
}

// If all times are in another unit, the observation must be the same.
func TestUnitOfTimeHasNoEffect(t *testing.T) {
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	_, _, want := valuesOf(t, freshNet(t, DefaultEncoding()), DefaultEncoding(), 1, 1, setup, w, s)
	const factor = 1000
	for i := range w.Jobs {
		w.Jobs[i].Work *= factor
		s.Remaining[i] *= factor
	}
	for i := range s.Running {
		s.Running[i].Remaining *= factor
	}
	_, _, got := valuesOf(t, freshNet(t, DefaultEncoding()), DefaultEncoding(), 1, 1, setup, w, s)
	for i := range want.State {
		if math.Abs(float64(got.State[i]-want.State[i])) > 1e-5 {
			t.Errorf("number %d: got %v, want %v", i, got.State[i], want.State[i])
		}
	}
}

// A network must schedule all jobs on clusters outside its training: with many machines, with large machines, and with
// several types on a machine.
func TestPolicyWorksOnUnseenClusters(t *testing.T) {
	p := smallProblem()
	p.Encoding.Advice, p.Encoding.Ingested = "gang", true
	policy := opened(t, trained(t, tinyOptions(), p), scheduler.Options{})
	types := workload.Default().Cluster.Types
	both := workload.NewCluster(types, workload.MachineSpec{Count: 2, Type: workload.Volta, GPUs: 4, CPUs: 64,
		Memory: 1 << 40, Network: 1e9})
	for _, gpu := range []int{1, 2, 6} { // the two types alternate on each machine
		both.GPUs[gpu].Type = workload.Radeon
	}
	for name, setup := range map[string]*workload.Setup{
		"many machines": {
			Cluster: workload.NewCluster(types, workload.MachineSpec{Count: 20, Type: workload.Turing, GPUs: 2,
				CPUs: 16, Memory: 1 << 38, Network: 1e9},
				workload.MachineSpec{Count: 3, Type: workload.Volta, GPUs: 4, CPUs: 32, Memory: 1 << 38,
					Network: 1e9})},
		"a large machine": {
			Cluster: workload.NewCluster(types, workload.MachineSpec{Count: 1, Type: workload.Radeon, GPUs: 36,
				CPUs: 512, Memory: 1 << 42, Network: 1e9})},
		"two types": {Cluster: both},
		"random":    workload.Random(11),
	} {
		t.Run(name, func(t *testing.T) {
			if setup.Kinds == nil {
				d := workload.Default()
				setup.Kinds, setup.Shapes, setup.Speeds = d.Kinds, d.Shapes, d.Speeds
			}
			w, err := workload.Generate(setup, workload.Arrivals{Jobs: 40, Load: 1, Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			for i := range w.Jobs {
				w.Jobs[i].GPUs = min(w.Jobs[i].GPUs, 4)
			}
			r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{})
			if err != nil || policy.Err() != nil {
				t.Fatal(err, policy.Err())
			}
			for j, c := range r.Jobs {
				if math.IsNaN(c.Finish) {
					t.Errorf("job %d has not finished", j)
				}
			}
		})
	}
}

// The baseline must place a job that needs GPUs of several types. Without a baseline, such a job must cause an error of
// a specific type.
func TestJobsThatNeedSeveralTypes(t *testing.T) {
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 2, CPUs: 64, Memory: 1 << 40, Network: 1e9},
		workload.MachineSpec{Count: 1, Type: workload.Turing, GPUs: 2, CPUs: 64, Memory: 1 << 40, Network: 1e9})
	const images = 2 // number of a kind that runs on GPUs of several types
	w := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{
		{Name: "small", Kind: images, Work: 1000, GPUs: 1, CPUs: 1, Memory: 1},
		{Name: "mixed", Kind: images, Work: 1000, GPUs: 4, CPUs: 1, Memory: 1},
		{Name: "last", Kind: images, Work: 1000, GPUs: 2, CPUs: 1, Memory: 1}}}
	for _, advice := range []string{"gang", "srf", ""} {
		p := smallProblem()
		p.Encoding.Advice = advice
		policy, err := OpenPolicy(referenceDevice(t), latest(t, trained(t, tinyOptions(), p)),
			scheduler.Options{Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		var several *SeveralTypesError
		if advice == "" {
			if !errors.As(err, &several) || several.Job != 1 || several.Name != "mixed" || several.GPUs != 4 {
				t.Errorf("without a baseline: got %v, want a SeveralTypesError of job 1", err)
			}
		} else if err != nil || math.IsNaN(r.Jobs[1].Finish) {
			t.Errorf("%s: got %v, want all jobs to finish", advice, err)
		}
		if err := policy.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Facts of package features about a GPU must be in the same slot as the other facts about it.
func TestFactsOfAGPUShareASlot(t *testing.T) {
	e := allFacts()
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	n, o := encoded(t, e, 0, 0, setup, w, s)
	occupancy := slices.Index(n.ingested.Names(), "gpu[0].occupancy") - features.PerCluster
	plane, busy := n.shape.Rows*n.shape.Slots, 0
	for at := range plane {
		want, got := o.Image[imageBusy*plane+at], o.Image[(imageChannels+occupancy)*plane+at]
		if got != want {
			t.Errorf("row %d, slot %d: got occupancy %v, want %v", at/n.shape.Slots, at%n.shape.Slots, got, want)
		}
		if want > 0 {
			busy++
		}
	}
	if busy != 6 {
		t.Errorf("got %d GPUs with jobs, want 6", busy)
	}
}

// Facts of package features about a job must be in the pairs of the actions that start this job.
func TestFactsOfAJobAreInItsPairs(t *testing.T) {
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	n, o := encoded(t, allFacts(), 0, 0, setup, w, s)
	x, err := features.New(features.Options{Jobs: 1, GPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	priority := slices.Index(x.Names(), "job[0].priority") - features.PerCluster - features.PerGPU
	if slices.Equal(n.jobs, s.Queue[:len(n.jobs)]) {
		t.Fatal("the shown jobs are the first jobs of the queue: this state cannot show a wrong order")
	}
	check := func(action, job int) {
		p := o.Pairs[action*n.shape.Pair+pairNumbers:]
		if got, want := p[priority], float32(w.Jobs[job].Priority); got != want || p[features.PerJob+priority] != 1 {
			t.Errorf("action %d: got priority %v with mask %v, want %v with mask 1", action, got,
				p[features.PerJob+priority], want)
		}
	}
	for action := range n.shape.triples() {
		slot, _, _ := n.triple(action)
		check(action, n.jobs[slot])
	}
	if n.advice.Verb != scheduler.Start {
		t.Fatal("the baseline starts no job: this state cannot show the pair of its action")
	}
	check(n.shape.triples(), n.advice.Job)
}

// If the training of a network had no measurements of GPUs, its observations must not contain them later.
func TestMeasurementsAreUnknownUnlessTheTrainingHadThem(t *testing.T) {
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	for gpu := range setup.Cluster.GPUs {
		setup.Cluster.GPUs[gpu].Utilization, setup.Cluster.GPUs[gpu].Temperature = 1, 70
	}
	for _, measured := range [][2]bool{{false, false}, {true, false}, {false, true}} {
		e := allFacts()
		e.Utilization, e.Temperature = measured[0], measured[1]
		n, o := encoded(t, e, 0, 0, setup, w, s)
		plane := n.shape.Rows * n.shape.Slots
		for i, place := range []int{features.PlaceUtilization, features.PlaceTemperature} {
			for _, channel := range []int{imageChannels + place, imageChannels + features.PerGPU + place} {
				known := slices.ContainsFunc(o.Image[channel*plane:(channel+1)*plane],
					func(v float32) bool { return v != 0 })
				if known != measured[i] {
					t.Errorf("measured %v: channel %d has a value: got %v, want %v", measured, channel, known,
						measured[i])
				}
			}
		}
	}
}

// without contains the speeds of a workload, but no GPU runs one of the kinds.
type without struct {
	scheduler.Speeds
	kind int
}

func (s without) Alone(kind, typ, n int, spread bool) float64 {
	if kind == s.kind {
		return 0
	}
	return s.Speeds.Alone(kind, typ, n, spread)
}

// A real cluster may have a job that no GPU can run. The inputs of the network must stay finite, and other jobs must
// have times.
func TestAJobThatNoGPURunsKeepsTheInputsFinite(t *testing.T) {
	setup, w, s := busyState(t, [4]int{0, 1, 2, 3})
	job := s.Queue[0]
	w.Kinds = append(slices.Clone(w.Kinds), w.Kinds[w.Jobs[job].Kind])
	w.Jobs[job].Kind = len(w.Kinds) - 1
	n, err := newEncoder(DefaultEncoding(), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.reset(setup.Cluster, w, without{setup.Speeds, w.Jobs[job].Kind}); err != nil {
		t.Fatal(err)
	}
	o := NewObservation(n.shape)
	n.observe(s, o)
	for i, v := range o.State {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			t.Fatalf("number %d of the observation: got %v, want a finite number", i, v)
		}
	}
	times := 0
	for action := range n.shape.triples() {
		if o.Mask[action] && o.Pairs[action*n.shape.Pair+pairTime] > 0 {
			times++
		}
	}
	if times == 0 {
		t.Error("got a running time of 0 for all actions, want times above 0")
	}
}
