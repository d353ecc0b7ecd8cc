package dqn

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

func cpuDevice(t testing.TB) device.Device {
	t.Helper()
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, dev)
	return dev
}

func referenceDevice(t testing.TB) device.Device {
	dev := reference.New()
	closed(t, dev)
	return dev
}

// closed closes a device at the end of the test. It fails the test if memory of the device is still allocated.
func closed(t testing.TB, dev device.Device) {
	t.Cleanup(func() {
		if have, _ := dev.Memory(); have != 0 {
			t.Errorf("%d bytes of device memory are left after everything was closed", have)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
}

func twoProblems(n, jobs int) []Environment {
	var out []Environment
	for range n {
		out = append(out, &twoGPUs{jobs: jobs})
	}
	return out
}

func open(t testing.TB, dev device.Device, o Options, jobs int) *Learner {
	t.Helper()
	l, err := NewLearner(dev, o, 2, twoProblems(o.Environments, jobs))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func train(t testing.TB, l *Learner, episodes int64) {
	t.Helper()
	if err := l.Run(context.Background(), episodes, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func end(t testing.TB, l *Learner) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// weights returns all weights of the learner's networks.
func weights(t testing.TB, l *Learner) []byte {
	t.Helper()
	var out []byte
	online, err := l.net.tensors(l.net.online.Values, "")
	if err != nil {
		t.Fatal(err)
	}
	target, err := l.net.tensors(l.net.target.Values, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range append(online, target...) {
		out = append(out, x.Data...)
	}
	return out
}

// smallOptions returns options for problems that a learner learns in seconds.
func smallOptions() Options {
	o := Defaults()
	o.Network = Network{Filters: 4, Hidden: 128, Pair: 32}
	o.Environments, o.Batch, o.Replay, o.Warm, o.Target, o.Steps, o.Imitate = 16, 64, 1<<14, 512, 100, 1, 0
	o.Exploration = Schedule{From: 1, To: 0.05, Over: 2000}
	return o
}

// tinyOptions returns options for tests of a few updates.
func tinyOptions() Options {
	o := smallOptions()
	o.Network = Network{Filters: 2, Hidden: 8, Pair: 4}
	o.Environments, o.Batch, o.Replay, o.Warm, o.Target, o.Steps = 4, 8, 64, 16, 3, 2
	o.Rate = Schedule{To: 1e-2}
	return o
}

// singlePass returns a pass of the learner's network for one state.
func singlePass(t *testing.T, l *Learner) *pass {
	t.Helper()
	p, err := l.net.newPass(l.net.online, l.shape, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// play runs one episode with the best actions of the network, and returns the sum of its rewards. single is a pass for
// one state. env must not be an environment that the learner uses.
func play(l *Learner, single *pass, env Environment, seed uint64) (sum float64, err error) {
	if err := env.Reset(seed); err != nil {
		return 0, err
	}
	seen := NewObservation(l.shape)
	for {
		env.Observe(seen)
		single.set(0, seen.State)
		if err := single.forward(); err != nil {
			return 0, err
		}
		out, err := env.Step(best(single.value(0), seen.Mask))
		if err != nil {
			return 0, err
		}
		if sum += out.Reward; out.Done {
			return sum, nil
		}
	}
}

// The learner schedules 4 jobs on 2 GPUs of different speed. Over 300 problems, the sum of its costs must be within 1 %
// of the optimum, which dynamic programming finds.
func TestLearnerFindsTheOptimumOfDynamicProgramming(t *testing.T) {
	o := smallOptions()
	const episodes = 40000
	o.Rate = Schedule{From: 2e-3, To: 1e-5, Over: episodes}
	l := open(t, cpuDevice(t), o, 4)
	defer end(t, l)
	train(t, l, episodes)
	single := singlePass(t, l)
	got, want := 0.0, 0.0
	for seed := range uint64(300) {
		e := &twoGPUs{jobs: 4}
		if err := e.Reset(seed); err != nil {
			t.Fatal(err)
		}
		optimum := e.optimum()
		sum, err := play(l, single, e, seed)
		if err != nil {
			t.Fatal(err)
		}
		if sum > optimum+1e-9 {
			t.Fatalf("seed %d: sum of rewards: got %v, above the optimum %v", seed, sum, optimum)
		}
		got, want = got+sum, want+optimum
	}
	t.Logf("%d episodes, %d updates: cost %.4f of the optimum", l.Progress().Episodes, l.Progress().Updates, got/want)
	if got < 1.01*want { // costs are negative rewards
		t.Errorf("sum of rewards: got %.3f, want within 1 %% of %.3f", got, want)
	}
}

// Training that stops, is saved and resumes must give the same bits as uninterrupted training, even with another number
// of workers.
func TestResumedTrainingIsBitEqual(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"plain":         func(o *Options) { o.Double, o.Prioritised = false, false },
		"all options":   func(*Options) {},
		"memory wraps":  func(o *Options) { o.Replay, o.Warm = 20, 16 },
		"before update": func(o *Options) { o.Replay, o.Warm = 4096, 4096 },
	} {
		t.Run(name, func(t *testing.T) {
			o := tinyOptions()
			change(&o)
			whole := open(t, referenceDevice(t), o, 3)
			train(t, whole, 60)
			want, progress, curve := weights(t, whole), whole.Progress(), whole.Curve()
			end(t, whole)

			first := open(t, referenceDevice(t), o, 3)
			train(t, first, 25)
			dir := checkpointOf(t, first, json.RawMessage(`{}`))
			end(t, first)
			c, _, err := checkpoint.Latest(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			second, err := Resume(context.Background(), referenceDevice(t), c, 1, twoProblems(o.Environments, 3), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer end(t, second)
			if got := second.Progress().Episodes; got < 25 {
				t.Errorf("episodes after resuming: got %d, want those before, at least 25", got)
			}
			train(t, second, 60)
			if !slices.Equal(weights(t, second), want) {
				t.Error("the weights differ from those of the uninterrupted training")
			}
			got := second.Progress()
			progress.Target, got.Target = 0, 0
			if !slices.Equal(second.Curve(), curve) || len(curve) == 0 {
				t.Errorf("curve: got %v, want %v", second.Curve(), curve)
			}
			if got != progress {
				t.Errorf("progress: got %+v, want %+v", got, progress)
			}

			// Resume must refuse another problem.
			if _, err := Resume(context.Background(), referenceDevice(t), c, 1, twoProblems(o.Environments, 4),
				nil); err == nil || !strings.Contains(err.Error(), "shape") {
				t.Errorf("resuming with another shape: got %v, want an error about the shape", err)
			}
		})
	}
}

// If its context is canceled, Run must stop after the current round, without an error.
func TestRunStopsWhenTheContextEnds(t *testing.T) {
	o := tinyOptions()
	l := open(t, referenceDevice(t), o, 3)
	defer end(t, l)
	ctx, cancel := context.WithCancel(context.Background())
	rounds := 0
	err := l.Run(ctx, 1000, nil, func(Progress) {
		if rounds++; rounds == 3 {
			cancel()
		}
	})
	if err != nil || rounds != 3 || l.Progress().Decisions != int64(3*o.Environments) {
		t.Errorf("got error %v after %d rounds and %d decisions, want none after 3 rounds and %d decisions", err,
			rounds, l.Progress().Decisions, 3*o.Environments)
	}
}

// A caller may interrupt training to save it. The rate must cover all calls of Run together, so that the estimate of
// the remaining time does not jump.
func TestRateIsThatOfAllRuns(t *testing.T) {
	l := open(t, referenceDevice(t), tinyOptions(), 3)
	defer end(t, l)
	seconds := 0
	now := func() time.Duration { return time.Duration(seconds) * time.Second }
	report := func(Progress) { seconds += 2 } // time passes after the estimate of a round
	for _, episodes := range []int64{20, 40} {
		if err := l.Run(context.Background(), episodes, now, report); err != nil {
			t.Fatal(err)
		}
		seconds += 1000 // time passes between two calls
	}
	p := l.Progress()
	rounds := p.Decisions / int64(l.options.Environments)
	if want := float64(p.Episodes) / float64(2*(rounds-1)); math.Abs(p.Rate-want) > 1e-9 {
		t.Errorf("got %v episodes/s after %d episodes in %d rounds of 2 s, want %v", p.Rate, p.Episodes, rounds, want)
	}
}

// Only the value of the chosen action may have a gradient, and targets must use possible actions only.
func TestLossConcernsOnlyTheChosenAction(t *testing.T) {
	o := tinyOptions()
	o.Warm, o.Replay = 64, 64
	l := open(t, referenceDevice(t), o, 3)
	defer end(t, l)
	for l.progress.Updates == 0 {
		if err := l.round(); err != nil {
			t.Fatal(err)
		}
	}
	actions := l.shape.Actions()
	for i, d := range l.batch {
		at := l.replay.at(d.row, d.env)
		for a, diff := range l.learn.diff.values[i*actions : (i+1)*actions] {
			if chosen := a == int(l.replay.actions[at]); !chosen && diff != 0 {
				t.Errorf("transition %d: action %d was not chosen, and has the gradient %v", i, a, diff)
			}
		}
		if d.discount == 0 {
			continue
		}
		most := math.Inf(-1)
		for a, ok := range l.replay.mask(d.next) {
			if ok {
				most = max(most, float64(l.value.value(i)[a]))
			}
		}
		if got := l.aim(i, d); got > d.reward+d.discount*most+1e-6 {
			t.Errorf("transition %d: target %v exceeds that of the best possible action, %v", i, got,
				d.reward+d.discount*most)
		}
	}
}

// Environments must receive only possible actions, in training and in Play.
func TestActionsArePossible(t *testing.T) {
	o := tinyOptions()
	var envs []Environment
	for range o.Environments {
		envs = append(envs, &strict{twoGPUs{jobs: 3}, t})
	}
	l, err := NewLearner(referenceDevice(t), o, 1, envs)
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, l)
	train(t, l, 60)
	if _, err := play(l, singlePass(t, l), &strict{twoGPUs{jobs: 3}, t}, 1); err != nil {
		t.Fatal(err)
	}
}

// strict is an environment that fails the test if it receives an impossible action.
type strict struct {
	twoGPUs
	t *testing.T
}

func (s *strict) Step(action int) (Outcome, error) {
	o := NewObservation(s.Shape())
	s.Observe(o)
	if !o.Mask[action] {
		s.t.Errorf("got action %d, which is impossible in %v", action, o.Mask)
	}
	return s.twoGPUs.Step(action)
}

func TestOptionsOutOfRange(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"batch":       func(o *Options) { o.Batch = 0 },
		"warm":        func(o *Options) { o.Warm = 1 },
		"rate":        func(o *Options) { o.Rate = Schedule{To: math.NaN()} },
		"exploration": func(o *Options) { o.Exploration.From = 2 },
		"network":     func(o *Options) { o.Network.Hidden = 0 },
		"baseline":    func(o *Options) { o.Imitate = 10 },
		"replay":      func(o *Options) { o.Replay = 1e15 },
	} {
		o := tinyOptions()
		change(&o)
		l, err := NewLearner(referenceDevice(t), o, 1, twoProblems(4, 3))
		if err == nil {
			end(t, l)
			t.Errorf("%s: got no error", name)
			continue
		}
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %q, want it named", name, err)
		}
	}
}

// blind is twoGPUs whose observations are NaN.
type blind struct{ twoGPUs }

func (b *blind) Observe(o *Observation) {
	b.twoGPUs.Observe(o)
	o.Facts[0] = float32(math.NaN())
}

func TestLossThatIsNotFinite(t *testing.T) {
	o := tinyOptions()
	var envs []Environment
	for range o.Environments {
		envs = append(envs, &blind{twoGPUs{jobs: 3}})
	}
	l, err := NewLearner(referenceDevice(t), o, 1, envs)
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, l)
	if err := l.Run(context.Background(), 100, nil, nil); !errors.Is(err, ErrDiverged) {
		t.Errorf("got %v, want ErrDiverged", err)
	}
}

// A curve must keep its first part and its latest part at equal distances, in a bounded number of points.
func TestCurveIsBounded(t *testing.T) {
	var c curve
	for episodes := range int64(100000) {
		c.add(&Progress{Episodes: episodes})
	}
	for i, p := range c.Points {
		if i > 0 && p.Episodes-c.Points[i-1].Episodes != c.Every {
			t.Fatalf("points %d and %d: %d and %d episodes, want a distance of %d", i-1, i, c.Points[i-1].Episodes,
				p.Episodes, c.Every)
		}
	}
	if n := len(c.Points); n < curvePoints/2 || n > curvePoints || c.Points[0].Episodes > c.Every ||
		c.Points[n-1].Episodes < 100000-c.Every {
		t.Errorf("got %d points from %d to %d episodes", n, c.Points[0].Episodes, c.Points[n-1].Episodes)
	}
}

// changed is twoGPUs with other rewards, or with other observations.
type changed struct {
	twoGPUs
	factor float64 // factor on the rewards
	shift  float32 // shift of the first fact of observations
}

func (c *changed) Observe(o *Observation) {
	c.twoGPUs.Observe(o)
	o.Facts[0] += c.shift
}

func (c *changed) Step(action int) (Outcome, error) {
	out, err := c.twoGPUs.Step(action)
	out.Reward *= c.factor
	return out, err
}

func changedProblems(n int, factor float64, shift float32) []Environment {
	var out []Environment
	for range n {
		out = append(out, &changed{twoGPUs{jobs: 3}, factor, shift})
	}
	return out
}

// A checkpoint contains the actions of the replay memory instead of its states, and resuming repeats these actions.
// Resuming must return an error for another environment, and must stop when the context ends.
func TestResumingRepeatsTheEpisodesOfTheReplayMemory(t *testing.T) {
	o := tinyOptions()
	l := open(t, referenceDevice(t), o, 3)
	train(t, l, 60)
	dir := checkpointOf(t, l, json.RawMessage(`{}`))
	for i, a := range l.envs {
		if rows := l.replay.written - a.past[0].First; l.replay.written <= int64(l.replay.rows) ||
			rows > int64(l.replay.rows+10) {
			t.Errorf("environment %d: got the actions of %d of %d rows, want those of %d rows and one episode more", i,
				rows, l.replay.written, l.replay.rows)
		}
	}
	end(t, l)
	c := latest(t, dir)
	for _, tensor := range c.Optimizer.Tensors() {
		if strings.Contains(tensor.Name, "states") || strings.Contains(tensor.Name, "masks") {
			t.Errorf("the checkpoint has tensor %s", tensor.Name)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, wrong := range []struct {
		name         string
		ctx          context.Context
		environments []Environment
		want         string
	}{
		{"other rewards", context.Background(), changedProblems(o.Environments, 2, 0), "the environment differs"},
		{"other observations", context.Background(), changedProblems(o.Environments, 1, 1), "the environment differs"},
		{"cancelled", cancelled, twoProblems(o.Environments, 3), "canceled"},
	} {
		again, err := Resume(wrong.ctx, referenceDevice(t), c, 2, wrong.environments, nil)
		if err == nil {
			end(t, again)
		}
		if err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: got %v, want %q", wrong.name, err, wrong.want)
		}
	}
	same, err := Resume(context.Background(), referenceDevice(t), c, 2, changedProblems(o.Environments, 1, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	end(t, same)
}

// A finite reward that is too large for single precision, the type of the replay memory, must be an error.
func TestRewardsThatSinglePrecisionCannotHold(t *testing.T) {
	o := tinyOptions()
	l, err := NewLearner(referenceDevice(t), o, 1, changedProblems(o.Environments, 1e300, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, l)
	if err := l.Run(context.Background(), 10, nil, nil); err == nil || !strings.Contains(err.Error(), "got reward") {
		t.Errorf("got %v, want an error with the reward", err)
	}
}
