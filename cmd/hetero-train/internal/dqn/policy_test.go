package dqn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
)

// smallProblem returns a problem with small observations, for the reference device.
func smallProblem() Problem {
	p := DefaultProblem()
	p.Encoding.Oldest, p.Encoding.Shortest, p.Caution = 1, 2, 0
	p.Arrivals = []workload.Arrivals{{Jobs: 12, Load: 1.2}}
	return p
}

// learnerOf returns a learner of a problem on the default cluster.
func learnerOf(t testing.TB, dev device.Device, o Options, p Problem) *Learner {
	t.Helper()
	envs, err := NewEnvironments(o.Environments, p, Source{Setup: workload.Default()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLearner(dev, o, 1, envs)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// checkpointOf saves a checkpoint of a learner, and returns its folder.
func checkpointOf(t *testing.T, l *Learner, problem json.RawMessage) string {
	t.Helper()
	dir := t.TempDir()
	store, err := checkpoint.Open(dir, checkpoint.Options{Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Save(context.Background(), store, "test", problem); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// trained returns the folder of a checkpoint of a learner that was trained on a problem for a few episodes.
func trained(t *testing.T, o Options, p Problem) string {
	t.Helper()
	l := learnerOf(t, referenceDevice(t), o, p)
	defer end(t, l)
	train(t, l, 4)
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return checkpointOf(t, l, text)
}

func latest(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A network from a checkpoint must schedule all jobs on the cluster of its training and on changed ones: with fewer
// GPUs, with another machine of an unknown type, and with GPUs that fail. Equal inputs must give equal results.
func TestPolicyWorksOnChangedClusters(t *testing.T) {
	p := smallProblem()
	p.Encoding.Advice, p.Encoding.Similarity, p.Encoding.Ingested = "srf", 256, true
	policy := opened(t, trained(t, tinyOptions(), p), scheduler.Options{Explain: true})
	if got := policy.Trained().Episodes; got < 4 {
		t.Errorf("episodes: got %d, want at least 4", got)
	}
	for name, change := range map[string]func(*workload.Setup, *simulate.Options){
		"same": func(*workload.Setup, *simulate.Options) {},
		"one machine less": func(s *workload.Setup, o *simulate.Options) {
			for gpu := 12; gpu < 16; gpu++ {
				o.Changes = append(o.Changes, simulate.Change{GPU: gpu})
			}
		},
		"another type": func(s *workload.Setup, _ *simulate.Options) {
			c := s.Cluster
			c.Types = append(slices.Clone(c.Types),
				scheduler.GPUType{Name: "ampere", Memory: 40 << 30, Bandwidth: math.NaN(), Compute: math.NaN()})
			m := scheduler.Machine{Name: "new", CPUs: 64, Memory: 512 << 30, Network: math.NaN()}
			for range 2 {
				m.GPUs = append(m.GPUs, len(c.GPUs))
				c.GPUs = append(c.GPUs, scheduler.GPU{Name: "new", Type: 3, Machine: len(c.Machines),
					Utilization: math.NaN(), Temperature: math.NaN()})
			}
			c.Machines = append(c.Machines, m)
			for i, kind := range s.Speeds.Kinds {
				var faster []workload.Rate
				for _, r := range kind.Types[0] {
					faster = append(faster, workload.Rate{GPUs: r.GPUs, Packed: 2 * r.Packed, Spread: 2 * r.Spread})
				}
				s.Speeds.Kinds[i].Types = append(kind.Types, faster)
				s.Speeds.Kinds[i].Curves = nil
				s.Speeds.Kinds[i].Batch = 0
			}
			if err := s.Speeds.Build(4); err != nil {
				t.Fatal(err)
			}
		},
		"failure": func(_ *workload.Setup, o *simulate.Options) {
			o.Changes = []simulate.Change{{At: 500, GPU: 0}, {At: 900, GPU: 5}, {At: 2000, GPU: 0, Up: true},
				{At: 4000, GPU: 5, Up: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			setup, o := workload.Default(), simulate.Options{Record: true}
			change(setup, &o)
			w, err := workload.Generate(setup, workload.Arrivals{Jobs: 40, Load: 1, Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			var finish [2]float64
			for i := range finish {
				r, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, o)
				if err != nil || policy.Err() != nil {
					t.Fatal(err, policy.Err())
				}
				for j, c := range r.Jobs {
					if math.IsNaN(c.Finish) {
						t.Errorf("job %d has not finished", j)
					}
					finish[i] += c.Finish
				}
				for _, s := range r.Segments {
					if !strings.Contains(s.Reason, "largest of") &&
						!strings.Contains(s.Reason, "is larger, but more than 12 GPUs are free") &&
						!strings.Contains(s.Reason, fmt.Sprintf("jobs wait or run, more than the %d of the training",
							policy.Trained().Jobs)) {
						t.Fatalf("reason: got %q", s.Reason)
					}
				}
			}
			if finish[0] != finish[1] {
				t.Errorf("two runs differ: sums of the finish times are %v and %v", finish[0], finish[1])
			}
		})
	}

}

// opened opens the policy of the newest checkpoint in a folder, and closes it at the end of the test.
func opened(t *testing.T, dir string, o scheduler.Options) *Policy {
	t.Helper()
	policy, err := OpenPolicy(referenceDevice(t), latest(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := policy.Close(); err != nil {
			t.Error(err)
		}
	})
	return policy
}

// With an infinite margin, a policy must equal its baseline, independent of its weights. This must also hold on random
// clusters, and if jobs may not move.
func TestEndlessCautionIsTheBaseline(t *testing.T) {
	p := smallProblem()
	p.Encoding.Advice = "gang"
	dir := trained(t, tinyOptions(), p)
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %v", keep), func(t *testing.T) { endlessCaution(t, dir, keep) })
	}
}

func endlessCaution(t *testing.T, dir string, keep bool) {
	policy := opened(t, dir, scheduler.Options{Keep: keep, Explain: true})
	gang, err := scheduler.New("gang", scheduler.Options{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	differ := false
	for seed := range uint64(4) {
		setup := workload.Default()
		if seed > 1 {
			setup = workload.Random(seed)
		}
		w, err := workload.Generate(setup, workload.Arrivals{Jobs: 60, Load: 1, Seed: 50 + seed})
		if err != nil {
			t.Fatal(err)
		}
		margins := 0 // number of reasons that name the margin
		finish := func(p scheduler.Policy) (at []float64) {
			r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range r.Segments {
				if strings.Contains(s.Reason, "its gain is below the margin of +Inf") {
					margins++
				}
			}
			for _, j := range r.Jobs {
				at = append(at, j.Finish)
			}
			return at
		}
		want := finish(gang)
		policy.caution = math.Inf(1)
		if got := finish(policy); !slices.Equal(got, want) {
			t.Errorf("seed %d: finish times: got %v, want those of gang, %v", seed, got, want)
		}
		if margins == 0 {
			t.Errorf("seed %d: no reason names the margin, although the network alone would decide otherwise", seed)
		}
		policy.caution = 0
		differ = differ || !slices.Equal(finish(policy), want)
	}
	if !differ {
		t.Error("without a margin, the policy is the baseline too: this test cannot see a difference")
	}
}

// twin is a policy that calls gang in each state with waiting jobs, and compares its action with that of the policy
// dqn.
type twin struct {
	*Policy
	gang    scheduler.Policy
	t       *testing.T
	limit   int // largest number of jobs in training
	beyond  int // number of states with more jobs than limit
	differs int // number of other states in which the actions differ
}

func (w *twin) Reset(c *scheduler.Cluster, work *scheduler.Workload, s scheduler.Speeds) error {
	return errors.Join(w.gang.Reset(c, work, s), w.Policy.Reset(c, work, s))
}

func (w *twin) Decide(s *scheduler.State) scheduler.Action {
	got := w.Policy.Decide(s)
	if len(s.Queue) == 0 {
		return got
	}
	want := w.gang.Decide(s)
	same := got.Verb == want.Verb && got.Job == want.Job && slices.Equal(got.GPUs, want.GPUs)
	if len(s.Queue)+len(s.Running) <= w.limit {
		if !same {
			w.differs++
		}
		return got
	}
	w.beyond++
	if !same {
		w.t.Errorf("%d jobs wait or run, more than %d: got action %+v, want that of gang, %+v",
			len(s.Queue)+len(s.Running), w.limit, got, want)
	}
	return got
}

// In states with more jobs than in training, the policy must follow its baseline.
func TestStatesWithMoreJobsThanTheTrainingFollowTheBaseline(t *testing.T) {
	policy := opened(t, trained(t, tinyOptions(), smallProblem()), scheduler.Options{Explain: true})
	if got := policy.Trained().Jobs; got < 4 || got > 24 {
		// An episode has 12 jobs for each 16 GPUs, and clusters have at most 32 GPUs.
		t.Errorf("largest number of jobs of the training: got %d, want 4 to 24", got)
	}
	gang, err := scheduler.New("gang", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: 80, Load: 2, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	policy.progress.Jobs = 10
	both := &twin{Policy: policy, gang: gang, t: t, limit: 10}
	r, err := simulate.Run(both, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if both.beyond < 10 || both.differs < 1 {
		t.Errorf("got %d states with more than 10 jobs, and %d other states whose action is not that of gang, want at least 10 and 1",
			both.beyond, both.differs)
	}
	named := func(s scheduler.Segment) bool { return strings.Contains(s.Reason, "more than the 10 of the training") }
	if !slices.ContainsFunc(r.Segments, named) {
		t.Error("no reason names the number of jobs of the training")
	}
}

// The efficiency of placements must be the one that follows from the speeds, for a policy and for an environment. This
// must also hold if no job waits when a job ends.
func TestEfficienciesFollowTheSpeeds(t *testing.T) {
	p := smallProblem()
	p.Encoding.Advice, p.Encoding.Similarity, p.Encoding.Share = "srf", 256, false
	p.Arrivals = []workload.Arrivals{{Jobs: 40, Load: 0.3}}
	setup := workload.Default()
	setup.Cluster = workload.NewCluster(setup.Cluster.Types,
		workload.MachineSpec{Count: 4, Type: 1, GPUs: 4, CPUs: 64, Memory: 1 << 40, Network: 1e9})
	check := func(name string, a *hyper.Affinity) {
		placements, checked := a.Placements(), 0
		for _, p := range placements {
			kind := slices.IndexFunc(setup.Kinds, func(k scheduler.Kind) bool { return k.Name == p.Job.Kind })
			if p.Job.GPUs > 1 { // a gang is slower on several machines
				continue
			}
			best := 0.0
			for typ := range setup.Cluster.Types {
				best = max(best, setup.Speeds.Alone(kind, typ, 1, false))
			}
			checked++
			if want := setup.Speeds.Alone(kind, 1, 1, false) / best; math.Abs(p.Efficiency-want) > 1e-6 {
				t.Errorf("%s: %s: efficiency: got %v, want %v", name, p.Job.Kind, p.Efficiency, want)
			}
		}
		if checked < 5 {
			t.Errorf("%s: got %d placements of one GPU, want at least 5", name, checked)
		}
	}

	policy := opened(t, trained(t, tinyOptions(), p), scheduler.Options{})
	w, err := workload.Generate(setup, p.Arrivals[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simulate.Run(policy, setup.Cluster, w, setup.Speeds, simulate.Options{}); err != nil {
		t.Fatal(err)
	}
	check("policy", policy.encoder.affinity)

	envs, err := NewEnvironments(1, p, Source{Setup: setup})
	if err != nil {
		t.Fatal(err)
	}
	env := envs[0].(*cluster)
	for done := false; !done; {
		out, err := env.Step(env.Advise())
		if err != nil {
			t.Fatal(err)
		}
		done = out.Done
	}
	check("environment", env.encoder.affinity)
}

// The policy must refuse a checkpoint whose weights belong to another network.
func TestPolicyRefusesOtherNetworks(t *testing.T) {
	c := latest(t, trained(t, tinyOptions(), smallProblem()))
	for name, change := range map[string]func(*saved){
		"shape":       func(s *saved) { s.Shape.Jobs++ },
		"widths":      func(s *saved) { s.Options.Network.Hidden++ },
		"no encoding": func(s *saved) { s.Problem = json.RawMessage(`{}`) },
		"format":      func(s *saved) { s.Format = 1 },
	} {
		state, err := readState(c)
		if err != nil {
			t.Fatal(err)
		}
		change(state)
		text, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		other := *c
		other.State.Extra = map[string]json.RawMessage{extraName: text}
		_, err = OpenPolicy(referenceDevice(t), &other, scheduler.Options{})
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
		if name == "format" && !strings.Contains(err.Error(), "got format 1, want 4: train it again") {
			t.Errorf("%s: got %v, want the formats and what to do", name, err)
		}
		if name == "widths" && !errors.As(err, new(*checkpoint.MismatchError)) {
			t.Errorf("%s: got %v, want a MismatchError", name, err)
		}
	}
	other := *c
	older := func(format int, ingested bool) error {
		state, err := readState(c)
		if err != nil {
			t.Fatal(err)
		}
		problem := smallProblem()
		problem.Encoding.Ingested = ingested
		state.Format, state.Training = format, 0
		if state.Problem, err = json.Marshal(problem); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		other.State.Extra = map[string]json.RawMessage{extraName: text}
		p, err := OpenPolicy(referenceDevice(t), &other, scheduler.Options{})
		if err == nil {
			err = p.Close()
		}
		return err
	}
	for format := oldestFormat; format < networkFormat; format++ {
		want := fmt.Sprintf("its inputs have changed: got format %d, want 4", format)
		if err := older(format, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("format %d with ingested facts: got %v, want the formats and what to do", format, err)
		}
		if err := older(format, false); err != nil {
			t.Errorf("format %d without ingested facts: got %v", format, err)
		}
	}
	if _, err := Resume(t.Context(), referenceDevice(t), &other, 1, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "its network can be used, but its training cannot be resumed") {
		t.Errorf("an older training: got %v, want an error", err)
	}
	other.State.Extra = nil
	if _, err := OpenPolicy(referenceDevice(t), &other, scheduler.Options{}); err == nil ||
		!strings.Contains(err.Error(), "not a checkpoint of a scheduling network") {
		t.Errorf("checkpoint of another program part: got %v", err)
	}
}

// The simulator's environment must also resume to the same bits: it repeats the actions of its episode.
func TestResumedClusterIsBitEqual(t *testing.T) {
	o, p := tinyOptions(), smallProblem()
	p.Encoding.Advice, p.Encoding.Similarity, o.Imitate = "srf", 256, 3
	make := func() []Environment {
		envs, err := NewEnvironments(o.Environments, p, Source{Setup: workload.Default()})
		if err != nil {
			t.Fatal(err)
		}
		return envs
	}
	whole, err := NewLearner(referenceDevice(t), o, 1, make())
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, whole)
	train(t, whole, 10)
	second, err := Resume(context.Background(), referenceDevice(t), latest(t, trained(t, o, p)), 2, make(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, second)
	train(t, second, 10)
	if !slices.Equal(weights(t, whole), weights(t, second)) {
		t.Error("the weights differ from those of the uninterrupted training")
	}
}

// The built-in network must load, and must schedule better than its baseline gang. On other workloads of the default
// cluster than those of its training, the mean completion time must be at least 8 % shorter.
// On clusters outside its training, the ratio of the mean completion times to those of gang must be at most 1 and 1.05.
// A network with random weights must follow gang, or be worse than gang.
func TestTrainedNetwork(t *testing.T) {
	dev := cpuDevice(t)
	trained, err := OpenTrained(dev, scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trained.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := trained.Trained().Jobs; got != 47 {
		t.Errorf("largest number of jobs of the training: got %d, want 47: the policy then follows gang in states with more jobs",
			got)
	}
	gang, err := scheduler.New("gang", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	less := workload.Default() // without one of the two Volta machines
	less.Cluster = workload.NewCluster(less.Cluster.Types,
		workload.MachineSpec{Count: 1, Type: workload.Volta, GPUs: 4, CPUs: 32, Memory: 1 << 38, Network: 1e9},
		workload.MachineSpec{Count: 1, Type: workload.Turing, GPUs: 4, CPUs: 32, Memory: 1 << 38, Network: 1e9},
		workload.MachineSpec{Count: 1, Type: workload.Radeon, GPUs: 4, CPUs: 32, Memory: 1 << 38, Network: 1e9})
	for _, c := range []struct {
		name  string
		setup func(seed uint64) *workload.Setup
		seeds uint64
		most  float64 // largest ratio of the completion time to that of gang
	}{
		{"default cluster", func(uint64) *workload.Setup { return workload.Default() }, 6, 0.92},
		{"one Volta machine less", func(uint64) *workload.Setup { return less }, 6, 1},
		{"random clusters", workload.Random, 12, 1.05},
	} {
		ratio := 0.0
		for i := range c.seeds {
			seed := 1e6 + i
			setup := c.setup(seed)
			w, err := workload.Generate(setup, workload.Arrivals{Jobs: 100, Load: 0.9, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			for k := range w.Jobs {
				w.Jobs[k].GPUs = min(w.Jobs[k].GPUs, 4) // without one Volta machine, no type has 8 GPUs
			}
			mean := func(p scheduler.Policy) (seconds float64) {
				r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range r.Jobs {
					seconds += (j.Finish - j.Arrival) / float64(len(r.Jobs))
				}
				return seconds
			}
			ratio += math.Log(mean(trained)/mean(gang)) / float64(c.seeds)
		}
		if ratio = math.Exp(ratio); !(ratio <= c.most) {
			t.Errorf("%s: completion time relative to gang: got %.3f, want at most %v", c.name, ratio, c.most)
		}
		t.Logf("%s: completion time relative to gang: %.3f after %d episodes", c.name, ratio,
			trained.Trained().Episodes)
	}
}
