package dqn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// saved is the state of a learner without its tensors. state.json contains it under the name of this package.
type saved struct {
	Format   int             `json:"format"` // savedFormat
	Shape    Shape           `json:"shape"`
	Options  Options         `json:"options"`
	Problem  json.RawMessage `json:"problem"` // what the caller of Save passed
	Progress Progress        `json:"progress"`

	// The fields below are needed only to resume a training, not to use the network.
	Random  []byte           `json:"random"`
	Window  window           `json:"window"`
	Curve   curve            `json:"curve"`
	Actors  []savedActor     `json:"actors"`
	Written int64            `json:"written"`
	Largest checkpoint.Float `json:"largest"`
}

// savedFormat is the format of saved, and of the network. Networks of other formats cannot be read.
const savedFormat = 2

// savedActor restores an environment: it repeats the actions of the episode.
type savedActor struct {
	Episode int64            `json:"episode"`
	Sum     checkpoint.Float `json:"sum"`
	Actions []int32          `json:"actions"`
}

// extraName is the key of saved in checkpoint.State.Extra.
const extraName = "dqn"

// Endings of the names of tensors.
const (
	endTarget = ".target"
	replayAt  = "replay."
)

// Snapshot returns the complete state of the learner. problem describes the environments for the reader of the file.
// program is the version of the program. The snapshot refers to memory of the learner, so save it before the next Run.
func (l *Learner) Snapshot(program string, problem json.RawMessage) (checkpoint.Snapshot, error) {
	state := saved{Format: savedFormat, Shape: l.shape, Options: l.options, Problem: problem, Progress: l.progress, Window: l.window, Curve: l.curve,
		Written: l.replay.written, Largest: checkpoint.Float(l.replay.largest)}
	for _, a := range l.envs {
		state.Actors = append(state.Actors, savedActor{Episode: a.episode, Sum: checkpoint.Float(a.sum), Actions: a.actions})
	}
	var err error
	if state.Random, err = l.source.MarshalBinary(); err != nil {
		return checkpoint.Snapshot{}, err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot := checkpoint.Snapshot{State: checkpoint.State{
		Program: program, Step: l.progress.Updates, Epoch: l.progress.Episodes, SamplesSeen: l.progress.Decisions, Seed: l.options.Seed,
		Optimizer: checkpoint.OptimizerState{Name: "adam", Scalars: map[string]checkpoint.Float{"steps": checkpoint.Float(l.net.optimizer.Steps())}},
		Counters:  map[string]int64{"episodes": l.progress.Episodes},
		Extra:     map[string]json.RawMessage{extraName: text},
	}}
	if snapshot.Model, err = l.net.tensors(l.net.online.Values, ""); err != nil {
		return checkpoint.Snapshot{}, err
	}
	target, err := l.net.tensors(l.net.target.Values, endTarget)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot.Optimizer = append(l.replay.tensors(), target...)
	for _, m := range l.net.optimizer.Moments() {
		moments, err := l.net.tensors(m.Flat, "."+m.Name)
		if err != nil {
			return checkpoint.Snapshot{}, err
		}
		snapshot.Optimizer = append(snapshot.Optimizer, moments...)
	}
	return snapshot, nil
}

// Save writes a checkpoint. The folder's name contains the number of updates.
func (l *Learner) Save(ctx context.Context, store *checkpoint.Store, program string, problem json.RawMessage) (checkpoint.Saved, error) {
	snapshot, err := l.Snapshot(program, problem)
	if err != nil {
		return checkpoint.Saved{}, err
	}
	return store.Save(ctx, snapshot)
}

// SavedProblem returns the description of the environments that the caller of Save passed.
func SavedProblem(c *checkpoint.Checkpoint) (json.RawMessage, error) {
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	return state.Problem, nil
}

// Resume creates a learner that continues exactly where the saved learner stopped. On a device of the same kind, it
// makes the same decisions and updates, bit for bit. environments must be equal to those of the saved learner. To
// change options, such as the learning rate, pass a function; nil changes nothing. Options that determine the memory of
// the learner (network, environments, replay, steps, prioritised) cannot change.
func Resume(dev device.Device, c *checkpoint.Checkpoint, workers int, environments []Environment, change func(*Options)) (_ *Learner, err error) {
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	options := state.Options
	if change != nil {
		change(&options)
	}
	o, s := options, state.Options
	if o.Network != s.Network || o.Environments != s.Environments || o.Replay != s.Replay || o.Steps != s.Steps || o.Prioritised != s.Prioritised || o.Seed != s.Seed {
		return nil, fmt.Errorf("resume from %s: the options that determine the learner's memory differ: got %+v, want %+v", c.Path, o, s)
	}
	l, err := newLearner(dev, options, workers, environments)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("resume from %s: %w", c.Path, err), l.Close())
		}
	}()
	if l.shape != state.Shape {
		return nil, fmt.Errorf("the environments have shape %+v, the network was trained with %+v", l.shape, state.Shape)
	}
	return l, l.restore(c, state)
}

func (l *Learner) restore(c *checkpoint.Checkpoint, state *saved) error {
	if err := l.net.check(c.Model); err != nil {
		return err
	}
	if err := l.net.load(c.Model, l.net.online.Values, ""); err != nil {
		return err
	}
	if err := l.net.load(c.Optimizer, l.net.target.Values, endTarget); err != nil {
		return err
	}
	for _, m := range l.net.optimizer.Moments() {
		if err := l.net.load(c.Optimizer, m.Flat, "."+m.Name); err != nil {
			return err
		}
	}
	l.net.optimizer.SetSteps(int(c.State.Optimizer.Scalars["steps"]))
	if err := l.source.UnmarshalBinary(state.Random); err != nil {
		return err
	}
	if len(state.Actors) != len(l.envs) || len(state.Window.Values) > windowEpisodes || state.Window.Next < 0 || state.Window.Next >= windowEpisodes || state.Written < 1 {
		return fmt.Errorf("state.json: got %d environments, %d sums of rewards and %d rows; want %d environments, at most %d sums and at least 1 row",
			len(state.Actors), len(state.Window.Values), state.Written, len(l.envs), windowEpisodes)
	}
	l.progress, l.window, l.curve = state.Progress, state.Window, state.Curve
	l.progress.Return = l.window.mean()
	l.replay.written, l.replay.largest = state.Written, float64(state.Largest)
	if err := l.replay.load(c.Optimizer); err != nil {
		return err
	}
	l.each(func(i int, a *actor) { a.err = l.repeat(i, state.Actors[i]) })
	for i, a := range l.envs {
		if a.err != nil {
			return fmt.Errorf("environment %d: %w", i, a.err)
		}
	}
	return nil
}

// repeat restores environment i, and checks that its state is the one that was saved.
func (l *Learner) repeat(i int, s savedActor) error {
	a := l.envs[i]
	a.episode, a.sum, a.actions = s.Episode, float64(s.Sum), slices.Clone(s.Actions)
	if err := a.env.Reset(l.seed(i, a.episode)); err != nil {
		return err
	}
	seen := NewObservation(l.shape)
	for at, action := range a.actions {
		if action < 0 || int(action) >= l.shape.Actions() {
			return fmt.Errorf("action %d of the episode: got %d, want 0 to %d", at, action, l.shape.Actions()-1)
		}
		a.env.Observe(seen)
		if !seen.Mask[action] {
			return fmt.Errorf("action %d of the episode is %d, which the environment does not allow: the environment differs from that of the checkpoint", at, action)
		}
		if _, err := a.env.Step(int(action)); err != nil {
			return err
		}
	}
	a.env.Observe(seen)
	at := l.replay.at(l.replay.written-1, i)
	a.view = l.shape.view(l.replay.state(at), l.replay.mask(at))
	if !slices.Equal(seen.State, a.view.State) || !slices.Equal(seen.Mask, a.view.Mask) {
		return errors.New("the restored state differs from the saved state: the environment differs from that of the checkpoint")
	}
	return nil
}

// readState returns the part of a checkpoint that this package wrote.
func readState(c *checkpoint.Checkpoint) (*saved, error) {
	text, ok := c.State.Extra[extraName]
	if !ok {
		return nil, fmt.Errorf("%s: not a checkpoint of a scheduling network: state.json has no part %q", c.Path, extraName)
	}
	var format struct{ Format int }
	if err := json.Unmarshal(text, &format); err != nil {
		return nil, fmt.Errorf("%s: state.json: part %q: %w", c.Path, extraName, err)
	}
	if format.Format != savedFormat {
		return nil, fmt.Errorf("%s: another version of the program saved this network: got format %d, want %d: train it again with schedule train",
			c.Path, format.Format, savedFormat)
	}
	state := &saved{}
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("%s: state.json: part %q: %w", c.Path, extraName, err)
	}
	if err := errors.Join(state.Shape.check(), state.Options.check()); err != nil {
		return nil, fmt.Errorf("%s: state.json: %w", c.Path, err)
	}
	return state, nil
}

// part is one array of the replay memory as it is stored.
type part struct {
	name  string
	dtype tensor.DType
	width int // elements of a transition
	data  []byte
}

// bytesOf returns the memory of values; every machine that the engine runs on is little endian.
func bytesOf[T any](values []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(v)))
}

func (r *replay) parts() []part {
	parts := []part{
		{"states", tensor.F32, r.shape.Floats(), bytesOf(r.states)},
		{"masks", tensor.U8, r.shape.Actions(), bytesOf(r.masks)},
		{"actions", tensor.I32, 1, bytesOf(r.actions)},
		{"advice", tensor.I32, 1, bytesOf(r.advice)},
		{"rewards", tensor.F32, 1, bytesOf(r.rewards)},
		{"discounts", tensor.F32, 1, bytesOf(r.discounts)},
	}
	if r.tree != nil {
		parts = append(parts, part{"weights", tensor.F64, 1, bytesOf(r.tree.nodes[r.tree.leaves:][:r.rows*r.envs])})
	}
	return parts
}

// tensors returns the rows that have been written.
func (r *replay) tensors() []checkpoint.Tensor {
	used := int(min(r.written, int64(r.rows))) * r.envs
	var out []checkpoint.Tensor
	for _, p := range r.parts() {
		bytes := used * p.width * int(p.dtype.Size())
		out = append(out, checkpoint.Tensor{Name: replayAt + p.name, DType: p.dtype, Shape: tensor.Shape{used, p.width}, Data: p.data[:bytes]})
	}
	return out
}

// load restores the memory from a checkpoint; written and largest are set before.
func (r *replay) load(f *checkpoint.File) error {
	used := int(min(r.written, int64(r.rows))) * r.envs
	for _, p := range r.parts() {
		info, ok := f.Info(replayAt + p.name)
		if want := (tensor.Shape{used, p.width}); !ok || info.DType != p.dtype || !info.Shape.Equal(want) {
			return fmt.Errorf("tensor %s: got %v%v, want %v%v", replayAt+p.name, info.Wire, info.Shape, p.dtype, want)
		}
		into := p.data[:used*p.width*int(p.dtype.Size())]
		if p.name == "masks" { // a byte other than 0 and 1 is not a valid bool
			raw := make([]byte, len(into))
			if err := f.ReadInto(replayAt+p.name, raw); err != nil {
				return err
			}
			for i, b := range raw {
				r.masks[i] = b != 0
			}
			continue
		}
		if err := f.ReadInto(replayAt+p.name, into); err != nil {
			return err
		}
	}
	for i := range used {
		if a, b := int(r.actions[i]), int(r.advice[i]); a < 0 || a >= r.shape.Actions() || b < -1 || b >= r.shape.Actions() {
			return fmt.Errorf("transition %d: got action %d and advice %d, want an action from 0 to %d and an advice from -1 to %d", i, a, b, r.shape.Actions()-1, r.shape.Actions()-1)
		}
		if r.tree != nil {
			w := r.tree.weight(i)
			if !(w >= 0 && w <= math.MaxFloat64) {
				return fmt.Errorf("transition %d: got weight %v, want a finite number of at least 0", i, w)
			}
			r.tree.set(i, w)
		}
	}
	return nil
}
