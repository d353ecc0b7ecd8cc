package dqn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
)

// saved is the state of a learner without its tensors. The file state.json of a checkpoint contains it under the name
// of this package.
type saved struct {
	Format   int             `json:"format"` // networkFormat
	Shape    Shape           `json:"shape"`
	Options  Options         `json:"options"`
	Problem  json.RawMessage `json:"problem"` // description from the caller of Save
	Progress Progress        `json:"progress"`

	// Only a resumed training run needs the fields below.
	Training int              `json:"training"` // trainingFormat
	Random   []byte           `json:"random"`
	Window   window           `json:"window"`
	Curve    curve            `json:"curve"`
	Actors   []savedActor     `json:"actors"`
	Written  int64            `json:"written"` // number of rows of the replay memory, over the whole run
	Largest  checkpoint.Float `json:"largest"`
	States   uint32           `json:"states"` // checksum of the states and masks of the replay memory
}

// Formats of saved. If networkFormat changes, older networks cannot be used. If trainingFormat changes, older training
// runs cannot be resumed.
const (
	networkFormat = 4
	// The formats from oldestFormat to networkFormat differ only in the inputs of networks with Encoding.Ingested.
	oldestFormat   = 2
	trainingFormat = 3
)

// savedActor contains the actions of an environment's episodes. Resume repeats them to restore the environment and its
// part of the replay memory. Actions take 300 times less space than the states that result from them.
type savedActor struct {
	Sum  checkpoint.Float `json:"sum"`
	Past []episode        `json:"past"`
}

// extraName is the key of saved in checkpoint.State.Extra.
const extraName = "dqn"

// endTarget is the suffix of the names of the tensors of the target network.
const endTarget = ".target"

// Snapshot returns the complete state of the learner. The parameter problem describes the environments for readers of
// the file, and program is the version of the program. The snapshot refers to memory of the learner, so save it before
// the next call of Run.
func (l *Learner) Snapshot(program string, problem json.RawMessage) (checkpoint.Snapshot, error) {
	state := saved{Format: networkFormat, Training: trainingFormat, Shape: l.shape, Options: l.options,
		Problem: problem, Progress: l.progress, Window: l.window, Curve: l.curve,
		Written: l.replay.written, Largest: checkpoint.Float(l.replay.largest), States: l.replay.checksum()}
	for _, a := range l.envs {
		state.Actors = append(state.Actors, savedActor{Sum: checkpoint.Float(a.sum), Past: a.past})
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
		Program: program, Step: l.progress.Updates, Epoch: l.progress.Episodes, SamplesSeen: l.progress.Decisions,
		Seed: l.options.Seed,
		Optimizer: checkpoint.OptimizerState{
			Name: "adam", Scalars: map[string]checkpoint.Float{"steps": checkpoint.Float(l.net.optimizer.Steps())}},
		Counters: map[string]int64{"episodes": l.progress.Episodes},
		Extra:    map[string]json.RawMessage{extraName: text},
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
func (l *Learner) Save(ctx context.Context, store *checkpoint.Store, program string, problem json.RawMessage) (
	checkpoint.Saved, error) {
	snapshot, err := l.Snapshot(program, problem)
	if err != nil {
		return checkpoint.Saved{}, err
	}
	return store.Save(ctx, snapshot)
}

// SavedProblem returns the description of the environments in a checkpoint, which the caller of Save passed.
func SavedProblem(c *checkpoint.Checkpoint) (json.RawMessage, error) {
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	return state.Problem, nil
}

// SavedOptions returns the options of the learner that has saved a checkpoint.
func SavedOptions(c *checkpoint.Checkpoint) (Options, error) {
	state, err := readState(c)
	if err != nil {
		return Options{}, err
	}
	return state.Options, nil
}

// Resume creates a learner that continues exactly where the saved learner stopped. On a device of the same kind, its
// decisions and updates are bit-equal to those of an uninterrupted learner. The parameter environments must equal the
// environments of the saved learner. The last parameter is a function that can change options, such as the learning
// rate; nil changes nothing. Options that determine the memory of the learner (network, environments, replay, steps,
// prioritised) cannot change.
//
// Resume repeats the episodes of the replay memory, which takes seconds. If ctx ends, it stops and returns the cause.
func Resume(ctx context.Context, dev device.Device, c *checkpoint.Checkpoint, workers int, environments []Environment,
	change func(*Options)) (_ *Learner, err error) {
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	if state.Training != trainingFormat {
		return nil, fmt.Errorf("resume from %s: another version of the program saved this training: got format %d, want %d; its network can be used, but its training cannot be resumed",
			c.Path, state.Training, trainingFormat)
	}
	options := state.Options
	if change != nil {
		change(&options)
	}
	o, s := options, state.Options
	if o.Network != s.Network || o.Environments != s.Environments || o.Replay != s.Replay || o.Steps != s.Steps ||
		o.Prioritised != s.Prioritised || o.Seed != s.Seed {
		return nil,
			fmt.Errorf("resume from %s: the options that determine the learner's memory differ: got %+v, want %+v",
				c.Path, o, s)
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
		return nil, fmt.Errorf("the environments have shape %+v, the network was trained with %+v", l.shape,
			state.Shape)
	}
	return l, l.restore(ctx, c, state)
}

func (l *Learner) restore(ctx context.Context, c *checkpoint.Checkpoint, state *saved) error {
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
	if len(state.Actors) != len(l.envs) || len(state.Window.Values) > windowEpisodes || state.Window.Next < 0 ||
		state.Window.Next >= windowEpisodes || state.Written < 1 {
		return fmt.Errorf("state.json: got %d environments, %d sums of rewards and %d rows; want %d environments, at most %d sums and at least 1 row",
			len(state.Actors), len(state.Window.Values), state.Written, len(l.envs), windowEpisodes)
	}
	l.progress, l.window, l.curve = state.Progress, state.Window, state.Curve
	l.progress.Return = l.window.mean()
	l.replay.written, l.replay.largest = state.Written, float64(state.Largest)
	if err := l.replay.load(c.Optimizer); err != nil {
		return err
	}
	l.each(func(i int, a *actor) { a.err = l.repeat(ctx, i, state.Actors[i]) })
	for i, a := range l.envs {
		if a.err != nil {
			return fmt.Errorf("environment %d: %w", i, a.err)
		}
	}
	if got := l.replay.checksum(); got != state.States {
		return fmt.Errorf("the repeated episodes have states with checksum %#08x, want %#08x: %w", got, state.States,
			errOther)
	}
	return nil
}

// errOther states that a repeated episode differs from the saved one.
var errOther = errors.New("the environment differs from that of the checkpoint")

// repeat restores environment i and its states in the replay memory by repeating its episodes. It compares actions,
// rewards and discounts with those in the memory.
func (l *Learner) repeat(ctx context.Context, i int, s savedActor) error {
	a, last := l.envs[i], len(s.Past)-1
	if last < 0 {
		return errors.New("the checkpoint has no episodes, want at least the current one")
	}
	from, _ := l.replay.bounds()
	if s.Past[0].First < 0 || s.Past[0].First > from {
		return fmt.Errorf("the first episode begins in row %d, want 0 to %d, the first row of the replay memory",
			s.Past[0].First, from)
	}
	a.past, a.sum = s.Past, float64(s.Sum)
	beyond := NewObservation(l.shape) // observation for rows that are no longer in the memory
	row := s.Past[0].First
	for k, e := range s.Past {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if want := s.Past[0].Number + int64(k); e.First != row || e.Number != want ||
			row+int64(len(e.Actions)) >= l.replay.written {
			return fmt.Errorf("episode %d with %d actions begins in row %d, want episode %d in row %d of %d", e.Number,
				len(e.Actions), e.First, want, row, l.replay.written)
		}
		if err := a.env.Reset(l.seed(i, e.Number)); err != nil {
			return err
		}
		for at, action := range e.Actions {
			a.view = beyond
			if row >= from {
				a.view = l.view(row, i)
			}
			a.env.Observe(a.view)
			if action < 0 || int(action) >= l.shape.Actions() || !a.view.Mask[action] {
				return fmt.Errorf("action %d of episode %d is %d, which is not possible: %w", at, e.Number, action,
					errOther)
			}
			out, err := a.env.Step(int(action))
			if err != nil {
				return err
			}
			if err := l.outcome(row, i, action, out); err != nil && row >= from {
				return fmt.Errorf("action %d of episode %d: %w: %w", at, e.Number, err, errOther)
			}
			if row++; out.Done != (k < last && at == len(e.Actions)-1) {
				return fmt.Errorf("action %d of episode %d: the end of the episode is %v, want the opposite: %w", at,
					e.Number, out.Done, errOther)
			}
		}
	}
	if row != l.replay.written-1 {
		return fmt.Errorf("the episodes end in row %d, want %d", row, l.replay.written-1)
	}
	a.view = l.view(row, i)
	a.env.Observe(a.view)
	return nil
}

// outcome compares a repeated action and its outcome with the replay memory.
func (l *Learner) outcome(row int64, i int, action int32, out Outcome) error {
	reward, discount, err := stored(out)
	if err != nil {
		return err
	}
	at, r := l.replay.at(row, i), l.replay
	if r.actions[at] != action || r.rewards[at] != reward || r.discounts[at] != discount {
		return fmt.Errorf("got action %d, reward %v and discount %v, want %d, %v and %v", action, reward, discount,
			r.actions[at], r.rewards[at], r.discounts[at])
	}
	return nil
}

// readState returns the part of a checkpoint that this package wrote.
func readState(c *checkpoint.Checkpoint) (*saved, error) {
	text, ok := c.State.Extra[extraName]
	if !ok {
		return nil, fmt.Errorf("%s: not a checkpoint of a scheduling network: state.json has no part %q", c.Path,
			extraName)
	}
	var format struct{ Format int }
	if err := json.Unmarshal(text, &format); err != nil {
		return nil, fmt.Errorf("%s: state.json: part %q: %w", c.Path, extraName, err)
	}
	if format.Format < oldestFormat || format.Format > networkFormat {
		return nil, fmt.Errorf("%s: another version of the program saved this network: got format %d, want %d: train it again with schedule train",
			c.Path, format.Format, networkFormat)
	}
	state := &saved{}
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("%s: state.json: part %q: %w", c.Path, extraName, err)
	}
	if format.Format != networkFormat {
		var problem Problem
		if err := json.Unmarshal(state.Problem, &problem); err != nil {
			return nil, fmt.Errorf("%s: state.json: problem: %w", c.Path, err)
		}
		if problem.Encoding.Ingested {
			return nil, fmt.Errorf("%s: another version of the program saved this network, and its inputs have changed: got format %d, want %d: train it again with schedule train",
				c.Path, format.Format, networkFormat)
		}
	}
	if err := errors.Join(state.Shape.check(), state.Options.check(), state.Progress.check()); err != nil {
		return nil, fmt.Errorf("%s: state.json: %w", c.Path, err)
	}
	return state, nil
}

// check returns an error for counters that no training run can have.
func (p *Progress) check() error {
	for _, c := range []struct {
		name string
		got  int64
	}{{"episodes", p.Episodes}, {"decisions", p.Decisions}, {"updates", p.Updates}, {"skipped", p.Skipped},
		{"jobs", int64(p.Jobs)}} {
		if c.got < 0 {
			return fmt.Errorf("progress: %s: got %d, want at least 0", c.name, c.got)
		}
	}
	return nil
}
