package dqn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
)

// ErrDiverged is the error of Learner.Run if the loss is not finite.
var ErrDiverged = errors.New("the network has diverged")

// Learner trains a Q network on several copies of an environment. It is not safe for concurrent use.
type Learner struct {
	options Options
	shape   Shape
	workers int

	net                      *net
	act, learn, ahead, value *pass // decisions; training; next states with trained and with target weights
	envs                     []*actor
	replay                   *replay
	source                   *rand.PCG
	random                   *rand.Rand
	batch                    []drawn

	progress Progress
	window   window
	curve    curve

	// Values for the estimate of the remaining time.
	resumed int64         // number of episodes before the first call of Run
	ran     time.Duration // time of the earlier calls of Run
	runs    int           // number of calls of Run
}

// actor is one environment, with the data that is needed to restore it and its part of the replay memory.
type actor struct {
	env   Environment
	view  *Observation
	past  []episode // episodes of the replay memory in order; the last one is the current episode
	sum   float64   // sum of the rewards of the current episode
	ended bool      // the last action ended an episode
	last  float64   // sum of the rewards of the last episode
	err   error
}

// episode is one episode of an environment. To restore its states, the learner repeats its actions.
type episode struct {
	Number  int64   `json:"number"`  // number of earlier episodes of the environment
	First   int64   `json:"first"`   // row of the replay memory with its first state, counted over the whole run
	Actions []int32 `json:"actions"` // one action for each row, from the row First
}

// drawn is a sampled transition.
type drawn struct {
	row      int64
	env      int
	weight   float64
	reward   float64
	discount float64
	next     int
}

// NewLearner creates a learner with initial weights. The parameter environments has Options.Environments equal
// environments, and workers is the number of goroutines that advance them. The learner does not close the device.
func NewLearner(dev device.Device, o Options, workers int, environments []Environment) (_ *Learner, err error) {
	l, err := newLearner(dev, o, workers, environments)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := l.net.initialise(o.Seed); err != nil {
		return nil, err
	}
	for i, a := range l.envs {
		a.past = []episode{{}}
		if err := a.env.Reset(l.seed(i, 0)); err != nil {
			return nil, fmt.Errorf("environment %d: %w", i, err)
		}
	}
	l.observe()
	return l, nil
}

// maxReplayBytes limits the size of the replay memory, which a damaged checkpoint could otherwise make arbitrarily
// large.
const maxReplayBytes = 64 << 30

// newLearner allocates a learner. Its weights are not set, and its environments have no episode.
func newLearner(dev device.Device, o Options, workers int, environments []Environment) (_ *Learner, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if len(environments) != o.Environments {
		return nil, fmt.Errorf("learner: got %d environments, want %d", len(environments), o.Environments)
	}
	l := &Learner{options: o, shape: environments[0].Shape(), workers: max(1, min(workers, len(environments))),
		batch: make([]drawn, o.Batch)}
	if err := l.shape.check(); err != nil {
		return nil, err
	}
	for i, e := range environments {
		if got := e.Shape(); got != l.shape {
			return nil, fmt.Errorf("learner: environment %d has shape %+v, environment 0 has %+v", i, got, l.shape)
		}
		if _, ok := e.(Adviser); o.Imitate > 0 && !ok {
			return nil, errors.New("learner: imitation needs environments with a baseline policy to imitate")
		}
		l.envs = append(l.envs, &actor{env: e})
	}
	if most := maxReplayBytes / (4 * l.shape.Floats()); o.Replay > most {
		return nil, fmt.Errorf("learner: replay: got %d decisions of %d numbers each, want at most %d decisions: the memory is limited to %d GiB",
			o.Replay, l.shape.Floats(), most, maxReplayBytes>>30)
	}
	l.source = rand.NewPCG(o.Seed, 0x64716e)
	l.random = rand.New(l.source)
	l.replay = newReplay(l.shape, o.Environments, o.Replay, o.Steps, o.Prioritised)
	l.progress.Return = math.NaN()
	// AdamW without weight decay is Adam
	adam := optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, ClipNorm: o.Clip}
	if l.net, err = openNet(dev, l.shape, o.Network, adam); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.act, err = l.net.newPass(l.net.online, l.shape, o.Environments, false); err != nil {
		return nil, err
	}
	if l.learn, err = l.net.newPass(l.net.online, l.shape, o.Batch, true); err != nil {
		return nil, err
	}
	if o.Double {
		if l.ahead, err = l.net.newPass(l.net.online, l.shape, o.Batch, false); err != nil {
			return nil, err
		}
	}
	l.value, err = l.net.newPass(l.net.target, l.shape, o.Batch, false)
	return l, err
}

// Close frees the memory of the network.
func (l *Learner) Close() error { return l.net.close() }

// Options returns the options of the learner.
func (l *Learner) Options() Options { return l.options }

// Progress returns the current state of the training run.
func (l *Learner) Progress() Progress { return l.progress }

// Curve returns up to 512 points of the training curve since the first episode.
func (l *Learner) Curve() []Point { return append([]Point(nil), l.curve.Points...) }

// seed returns the seed for an episode of environment env.
func (l *Learner) seed(env int, episode int64) uint64 {
	return random.New(l.options.Seed, "episode").Bits(uint64(episode)*uint64(len(l.envs)) + uint64(env))
}

// Run trains until the given number of episodes have ended in total, or until ctx ends. A cancelled context is not an
// error: the caller can then save the learner. The function now returns the time since any fixed moment; if it is nil,
// rate and remaining time are unknown. Run calls report after each round of decisions, so report must be fast. If the
// loss is not finite, the error is ErrDiverged.
func (l *Learner) Run(ctx context.Context, episodes int64, now func() time.Duration, report func(Progress)) error {
	if now == nil {
		now = func() time.Duration { return 0 }
	}
	l.progress.Target = episodes
	if l.runs++; l.runs == 1 {
		l.resumed = l.progress.Episodes
	}
	began := now()
	defer func() { l.ran += now() - began }()
	for l.progress.Episodes < episodes && ctx.Err() == nil {
		if err := l.round(); err != nil {
			return err
		}
		l.estimate(l.ran + now() - began)
		if report != nil {
			report(l.progress)
		}
	}
	return nil
}

// estimate sets Progress.Rate and Progress.Remaining.
func (l *Learner) estimate(took time.Duration) {
	p := &l.progress
	p.Rate, p.Remaining = 0, 0
	if done := p.Episodes - l.resumed; done > 0 && took > 0 {
		p.Rate = float64(done) / took.Seconds()
		p.Remaining = time.Duration(float64(max(0, p.Target-p.Episodes)) / p.Rate * float64(time.Second))
	}
}

// round takes one action in each environment, and updates the weights after every Options.Every rounds.
func (l *Learner) round() error {
	if err := l.decide(); err != nil {
		return err
	}
	l.each(func(i int, a *actor) { a.err = l.advance(i, a) })
	for i, a := range l.envs {
		if a.err != nil {
			return fmt.Errorf("environment %d: %w", i, a.err)
		}
		if a.ended {
			l.progress.Episodes++
			l.window.add(a.last)
		}
	}
	l.progress.Return = l.window.mean()
	l.curve.add(&l.progress)
	l.observe()
	l.progress.Decisions += int64(len(l.envs))
	if rounds := l.progress.Decisions / int64(len(l.envs)); l.replay.available() >= l.options.Warm &&
		rounds%int64(l.options.Every) == 0 {
		return l.update()
	}
	return nil
}

// observe begins a row of the replay memory, and writes the current states to it.
func (l *Learner) observe() {
	t := l.replay.begin()
	imitating := l.imitation() > 0
	l.each(func(i int, a *actor) {
		at := l.replay.at(t, i)
		a.view = l.view(t, i)
		a.env.Observe(a.view)
		l.replay.advice[at] = -1
		if imitating {
			l.replay.advice[at] = int32(a.env.(Adviser).Advise())
		}
	})
}

// view returns the observation of environment i in row t of the replay memory.
func (l *Learner) view(t int64, i int) *Observation {
	at := l.replay.at(t, i)
	return l.shape.view(l.replay.state(at), l.replay.mask(at))
}

// imitation returns the current weight of the imitation loss.
func (l *Learner) imitation() float64 {
	return Schedule{From: 1, To: 0, Over: l.options.Imitate}.At(l.progress.Episodes)
}

// each calls f for each environment on several goroutines.
func (l *Learner) each(f func(i int, a *actor)) {
	var group sync.WaitGroup
	for w := range l.workers {
		run := func() {
			for i := len(l.envs) * w / l.workers; i < len(l.envs)*(w+1)/l.workers; i++ {
				f(i, l.envs[i])
			}
		}
		if w == l.workers-1 {
			run()
			break
		}
		group.Go(run)
	}
	group.Wait()
}

// decide chooses an action for each environment.
func (l *Learner) decide() error {
	for i, a := range l.envs {
		l.act.set(i, a.view.State)
		if c, ok := a.env.(Counter); ok {
			l.progress.Jobs = max(l.progress.Jobs, c.Jobs())
		}
	}
	if err := l.act.forward(); err != nil {
		return err
	}
	explore, imitate := l.options.Exploration.At(l.progress.Episodes), l.imitation()
	l.progress.Explore = explore
	t := l.replay.written - 1
	for i, a := range l.envs {
		at := l.replay.at(t, i)
		action := best(l.act.value(i), a.view.Mask)
		if imitate > 0 && l.random.Float64() < imitate && l.replay.advice[at] >= 0 {
			action = int(l.replay.advice[at])
		}
		if l.random.Float64() < explore {
			action = anyOf(a.view.Mask, l.random)
		}
		l.replay.actions[at] = int32(action)
	}
	return nil
}

// best returns the possible action with the largest value, or the first such action if several have this value.
func best(values []float32, mask []bool) int {
	found := -1
	for a, ok := range mask {
		if ok && (found < 0 || values[a] > values[found]) {
			found = a
		}
	}
	return found
}

// anyOf returns a random possible action.
func anyOf(mask []bool, random *rand.Rand) int {
	n := 0
	for _, ok := range mask {
		if ok {
			n++
		}
	}
	left := random.IntN(n)
	for a, ok := range mask {
		if ok {
			if left == 0 {
				return a
			}
			left--
		}
	}
	panic("unreachable: n counts the possible actions")
}

// advance takes the action of environment i, records the outcome, and starts the next episode if the current one ended.
func (l *Learner) advance(i int, a *actor) error {
	at := l.replay.at(l.replay.written-1, i)
	action := l.replay.actions[at]
	out, err := a.env.Step(int(action))
	if err != nil {
		return err
	}
	reward, discount, err := stored(out)
	if err != nil {
		return fmt.Errorf("action %d: %w", action, err)
	}
	now := &a.past[len(a.past)-1]
	now.Actions = append(now.Actions, action)
	a.sum += out.Reward
	l.replay.rewards[at], l.replay.discounts[at] = reward, discount
	if a.ended = out.Done; out.Done {
		a.last, a.sum = a.sum, 0
		next := episode{Number: now.Number + 1, First: l.replay.written}
		a.past = append(l.remembered(a.past), next)
		return a.env.Reset(l.seed(i, next.Number))
	}
	return nil
}

// stored returns the reward and the discount of an outcome as the replay memory stores them. They are in single
// precision, with discount 0 at the end of an episode.
func stored(out Outcome) (reward, discount float32, err error) {
	reward, discount = float32(out.Reward), float32(out.Discount)
	if wide := float64(reward); math.IsNaN(wide) || math.IsInf(wide, 0) || !(out.Discount >= 0 && out.Discount <= 1) {
		return 0, 0,
			fmt.Errorf("got reward %v and discount %v, want a reward from %.4g to %.4g and a discount between 0 and 1",
				out.Reward, out.Discount, -math.MaxFloat32, math.MaxFloat32)
	}
	if out.Done {
		discount = 0
	}
	return reward, discount, nil
}

// remembered drops the earliest episodes if their states are no longer in the replay memory.
func (l *Learner) remembered(past []episode) []episode {
	from, _ := l.replay.bounds()
	gone := 0
	for gone < len(past) && past[gone].First+int64(len(past[gone].Actions)) <= from {
		gone++
	}
	return slices.Delete(past, 0, gone)
}

// update changes the weights once, from a batch of sampled transitions.
func (l *Learner) update() error {
	largest := 0.0
	for i := range l.batch {
		d := &l.batch[i]
		d.row, d.env, d.weight = l.replay.sample(l.random, l.options.Beta)
		d.reward, d.discount, d.next = l.replay.reward(d.row, d.env)
		largest = max(largest, d.weight)
		l.learn.set(i, l.replay.state(l.replay.at(d.row, d.env)))
		l.value.set(i, l.replay.state(d.next))
		if l.ahead != nil {
			l.ahead.set(i, l.replay.state(d.next))
		}
	}
	for _, p := range []*pass{l.learn, l.value, l.ahead} {
		if p == nil {
			continue
		}
		if err := p.forward(); err != nil {
			return err
		}
	}
	if err := l.loss(largest); err != nil {
		return err
	}
	ok, err := l.learn.update(l.options.Rate.At(l.progress.Episodes))
	if err != nil {
		return err
	}
	if !ok {
		l.progress.Skipped++
		return nil
	}
	l.net.changed(l.net.online)
	if l.progress.Updates++; l.progress.Updates%int64(l.options.Target) == 0 {
		l.net.changed(l.net.target)
		return l.net.copyTarget()
	}
	return nil
}

// loss writes the gradient of the loss with respect to the values of the actions, and the priorities of the batch. The
// Huber loss has a gradient only for the value of the chosen action. Imitation adds gradients for the advised action
// and its rival. The error is ErrDiverged if the mean error of the values is not finite.
func (l *Learner) loss(largest float64) error {
	diffs, actions, sum := l.learn.diff.values, l.shape.Actions(), 0.0
	clear(diffs)
	imitate, batch := l.imitation(), float64(len(l.batch))
	for i, d := range l.batch {
		at := l.replay.at(d.row, d.env)
		action := int(l.replay.actions[at])
		q, diff := l.learn.value(i), diffs[i*actions:(i+1)*actions]
		wrong := float64(q[action]) - l.aim(i, d)
		sum += math.Abs(wrong)
		diff[action] = float32(d.weight / largest * max(-1, min(1, wrong)) / batch)
		if advised := int(l.replay.advice[at]); imitate > 0 && advised >= 0 {
			if rival := l.rival(q, l.replay.mask(at), advised); rival != advised {
				diff[rival] += float32(imitate / batch)
				diff[advised] -= float32(imitate / batch)
			}
		}
		l.replay.prioritise(d.row, d.env, wrong, l.options.Alpha)
	}
	mean := sum / batch
	if math.IsNaN(mean) || math.IsInf(mean, 0) {
		return fmt.Errorf("learner: update %d: the mean error of the values is %v, want a finite number: %w; use a smaller learning rate",
			l.progress.Updates, mean, ErrDiverged)
	}
	const memory = 0.99
	if l.progress.Updates == 0 {
		l.progress.Error = mean
	} else {
		l.progress.Error = memory*l.progress.Error + (1-memory)*mean
	}
	return nil
}

// aim returns the target value of transition i of the batch. It is the sum of the rewards and of the discounted value
// of the best possible action in the next state.
func (l *Learner) aim(i int, d drawn) float64 {
	if d.discount == 0 {
		return d.reward
	}
	values, mask := l.value.value(i), l.replay.mask(d.next)
	chooser := values
	if l.ahead != nil {
		chooser = l.ahead.value(i)
	}
	return d.reward + d.discount*float64(values[best(chooser, mask)])
}

// rival returns the action with the largest value, where all actions except the advised one get the margin as a bonus.
func (l *Learner) rival(q []float32, mask []bool, advised int) int {
	found, most := advised, float64(q[advised])
	for a, ok := range mask {
		if v := float64(q[a]) + l.options.Margin; ok && a != advised && v > most {
			found, most = a, v
		}
	}
	return found
}

// window contains the sums of rewards of the last episodes.
type window struct {
	Values []float64 `json:"values"`
	Next   int       `json:"next"`
}

const windowEpisodes = 100

func (w *window) add(v float64) {
	if len(w.Values) < windowEpisodes {
		w.Values = append(w.Values, v)
		return
	}
	w.Values[w.Next] = v
	w.Next = (w.Next + 1) % windowEpisodes
}

func (w *window) mean() float64 {
	sum := 0.0
	for _, v := range w.Values {
		sum += v
	}
	return sum / float64(len(w.Values))
}
