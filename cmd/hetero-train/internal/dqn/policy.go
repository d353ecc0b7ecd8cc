package dqn

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/optim"
)

// Policy is policy "dqn". A trained network computes the values of the actions. The policy takes the possible action
// with the largest value, unless it follows its baseline (Problem.Caution).
//
// The network works on any cluster. Reset returns a [*SeveralTypesError] for a job that needs GPUs of several types if
// the policy has no baseline that could place it.
type Policy struct {
	net      *net
	pass     *pass // pass for the shape of the present cluster; nil before Reset
	encoder  *encoder
	agents   *agents // one agent for each machine; nil: one network decides for the whole cluster
	seen     *Observation
	problem  Problem
	progress Progress
	caution  float64 // Problem.Caution
	explain  bool
	failure  error
}

var _ scheduler.Policy = (*Policy)(nil)

// PolicyName is the name that users select.
const PolicyName = "dqn"

// OpenPolicy loads the network from a checkpoint that a Learner has saved. The policy does not keep the checkpoint or
// its files open. Close the policy before the device.
func OpenPolicy(dev device.Device, c *checkpoint.Checkpoint, o scheduler.Options) (*Policy, error) {
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	return openPolicy(dev, c.Path, state, c.Model, o)
}

// openPolicy creates a policy from the state and the weights of a checkpoint.
func openPolicy(dev device.Device, path string, state *saved, weights *checkpoint.File, o scheduler.Options) (_ *Policy,
	err error) {
	p := &Policy{progress: state.Progress, explain: o.Explain}
	if err := json.Unmarshal(state.Problem, &p.problem); err != nil {
		return nil, fmt.Errorf("%s: state.json: problem: %w", path, err)
	}
	if err := p.problem.check(); err != nil {
		return nil, fmt.Errorf("%s: state.json: %w", path, err)
	}
	if want := p.problem.Encoding.Shape(state.Shape.Rows, state.Shape.Slots); want != state.Shape {
		return nil, fmt.Errorf("%s: the network needs observations of shape %+v, but this version of the program makes observations of shape %+v: train the network again",
			path, state.Shape, want)
	}
	if p.encoder, err = newEncoder(p.problem.Encoding, o.Keep); err != nil {
		return nil, err
	}
	p.caution = p.problem.Caution
	if p.net, err = openNet(dev, state.Shape, state.Options.Network, optim.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("policy dqn from %s: %w", path, err), p.Close())
		}
	}()
	if err := p.net.check(weights); err != nil {
		return nil, err
	}
	return p, p.net.load(weights, p.net.online.Values, "")
}

// Name implements scheduler.Policy.
func (p *Policy) Name() string { return PolicyName }

// Trained returns the progress of the training run when the network was saved.
func (p *Policy) Trained() Progress { return p.progress }

// Problem returns the problem that the network was trained on.
func (p *Policy) Problem() Problem { return p.problem }

// Reset implements scheduler.Policy.
func (p *Policy) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	p.failure = nil
	if err := p.encoder.reset(c, w, s); err != nil {
		return err
	}
	if p.agents != nil {
		p.seen = NewObservation(p.encoder.shape)
		return p.agents.reset(p.encoder, p.net)
	}
	if p.pass != nil && p.pass.shape == p.encoder.shape {
		return nil
	}
	if p.pass != nil {
		if err := p.pass.close(); err != nil {
			return err
		}
		p.pass = nil
	}
	p.seen = NewObservation(p.encoder.shape)
	var err error
	p.pass, err = p.net.newPass(p.net.online, p.encoder.shape, 1, false)
	return err
}

// Decide implements scheduler.Policy. If the device fails, Decide returns only waiting actions, and Err returns the
// reason.
func (p *Policy) Decide(s *scheduler.State) scheduler.Action {
	if p.failure != nil {
		return scheduler.Action{}
	}
	if len(s.Queue) == 0 {
		a := p.encoder.idle(s)
		if a.Verb != scheduler.Wait && p.explain {
			a.Reason = fmt.Sprintf("no job waits, and policy %s decides then: it moves job %q to faster GPUs",
				p.encoder.Advice, p.encoder.work.Jobs[a.Job].Name)
		}
		return a
	}
	p.encoder.observe(s, p.seen)
	possible := 0
	for _, ok := range p.seen.Mask {
		if ok {
			possible++
		}
	}
	if possible == 0 || possible == 1 && p.seen.Mask[p.encoder.shape.Wait()] {
		return scheduler.Action{}
	}
	if p.agents != nil {
		action, bid, err := p.agents.decide(p.encoder, p.seen)
		if err != nil || bid <= 0 && p.seen.Mask[p.encoder.shape.Wait()] {
			p.failure = err
			return scheduler.Action{}
		}
		a := p.encoder.start(s, action)
		if p.explain {
			a.Reason = fmt.Sprintf("the largest bid of an agent: %.3f for %s", bid, p.describe(s, action))
		}
		return a
	}
	p.pass.set(0, p.seen.State)
	if err := p.pass.forward(); err != nil {
		p.failure = err
		return scheduler.Action{}
	}
	values := p.pass.value(0)
	action := best(values, p.seen.Mask)
	departs := "" // why the policy chose an action without the largest value
	if p.encoder.adviser != nil {
		if advised := p.encoder.advise(); p.seen.Mask[advised] && action != advised {
			if departs = p.departs(s, action, float64(values[action]-values[advised])); departs != "" {
				action = advised
			}
		}
	}
	a := p.encoder.start(s, action)
	if p.explain {
		a.Reason = p.reason(s, values, action, possible, departs)
	}
	return a
}

// departs returns the reason why the policy follows the baseline instead of the action with the largest value, or "" if
// it does not. The parameter gain is the difference between this value and the value of the baseline's action.
func (p *Policy) departs(s *scheduler.State, action int, gain float64) string {
	jobs, most := jobsIn(s), p.progress.Jobs
	switch {
	case most > 0 && jobs > most:
		return fmt.Sprintf("%d jobs wait or run, more than the %d of the training", jobs, most)
	case action == p.encoder.shape.Wait() && p.encoder.freeGPUs() > maxIdle:
		return fmt.Sprintf("more than %d GPUs are free", maxIdle)
	case gain < p.caution:
		return fmt.Sprintf("its gain is below the margin of %.3g", p.caution)
	}
	return ""
}

// maxIdle is the maximum number of free GPUs at which the policy may wait although the baseline would start a job.
// Waiting for better GPUs is useful in a busy cluster. But with jobs that differ much from the training jobs, the
// values of waiting can be wrong in all states. Jobs would then run one after another. With a smaller number, the
// policy loses part of its gain at load 1.5.
//
// Without a maximum, completion times on the default cluster are up to 5 % shorter. On one of Gavel's traces, they are
// then 36 % longer than with gang, and at most 3 % longer with 12 GPUs. Half or three quarters of the GPUs as a maximum
// are not better on all clusters.
const maxIdle = 12

// SetAlone makes the network decide without the baseline of its encoding. In each state, the policy then takes the
// possible action with the largest value. The margin and the limits of jobs and free GPUs do not apply.
//
// Such a policy moves no running job, and cannot run jobs that need GPUs of several types ([SeveralTypesError]).
//
// Call SetAlone before Reset. It has no effect on a network that was trained without a baseline ([Problem.SetAlone]).
func (p *Policy) SetAlone() {
	n := p.encoder
	n.Advice, n.adviser = "", nil
	n.cluster = nil // so that the next Reset computes the shape again
}

// SetAgents makes the policy decide with one agent for each machine, without a baseline ([Policy.SetAlone]). Call it
// before Reset.
func (p *Policy) SetAgents() {
	p.SetAlone()
	p.agents = &agents{}
}

// SetPartial makes Reset accept jobs that need GPUs of several types although the policy has no baseline that could
// place them. The policy never starts these jobs. This is for real clusters, on which such jobs must not block the
// others. Call SetPartial before Reset.
func (p *Policy) SetPartial() { p.encoder.partial = true }

// Unable returns the reason why the policy never starts a job of the present workload, or "". See [Policy.SetPartial].
func (p *Policy) Unable(job int) string {
	if p.encoder.startable(job) {
		return ""
	}
	return p.encoder.severalTypes(job).Reason()
}

// Err returns the failure of the device because of which the policy only waits, or nil.
func (p *Policy) Err() error { return p.failure }

// reason returns a text with the value of the action and the second largest value. The parameter cause states why the
// policy follows the baseline although another action has a larger value. It is "" if the action has the largest value.
func (p *Policy) reason(s *scheduler.State, values []float32, action, possible int, cause string) string {
	second := -1
	for a, ok := range p.seen.Mask {
		if ok && a != action && (second < 0 || values[a] > values[second]) {
			second = a
		}
	}
	if cause != "" {
		return fmt.Sprintf("policy %s decides: %.3f for %s; %.3f for %s is larger, but %s", p.encoder.Advice,
			values[action], p.describe(s, action), values[second], p.describe(s, second), cause)
	}
	text := fmt.Sprintf("largest of %d values: %.3f for %s", possible, values[action], p.describe(s, action))
	if second >= 0 {
		text += fmt.Sprintf("; the second largest is %.3f for %s", values[second], p.describe(s, second))
	}
	return text
}

func (p *Policy) describe(s *scheduler.State, action int) string {
	if action == p.encoder.shape.Wait() {
		return "waiting"
	}
	n := p.encoder
	if action >= n.shape.triples() {
		text := fmt.Sprintf("job %q placed by policy %s", n.work.Jobs[n.advice.Job].Name, n.Advice)
		if n.several[n.advice.Job] {
			text += " (it needs GPUs of several types)"
		}
		return text
	}
	slot, shares, row := n.triple(action)
	g := n.groups[row]
	where := fmt.Sprintf("%s on %s", n.cluster.Types[g.typ].Name, n.cluster.Machines[g.machine].Name)
	if shares {
		where += fmt.Sprintf(", shared with job %q", n.work.Jobs[s.Running[n.partner[slot*len(n.groups)+row]].Job].Name)
	}
	return fmt.Sprintf("job %q on %s", n.work.Jobs[n.jobs[slot]].Name, where)
}

// Close frees the network.
func (p *Policy) Close() error { return p.net.close() }
