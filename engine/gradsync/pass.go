package gradsync

import (
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// SamplesInput is the name of the graph input (ranks) i32 that nn.Net.Sync reads. Passes write this input if the graph
// has it.
const SamplesInput = "samples"

// Pass is a plan that is connected to the other ranks.
type Pass struct {
	sync     *Sync
	plan     *plan.Plan
	forward  []collective.Op
	backward []collective.Op
	samples  device.Region // memory of the plan's input SamplesInput; no buffer if the plan lacks this input
}

// Bind makes a plan of the model runnable in arena, and connects it to the other ranks. The plan stays bound until it
// is closed or bound again. All plans of a Sync must have the same exchanges.
func (s *Sync) Bind(p *plan.Plan, arena device.Region) (*Pass, error) {
	if err := s.takePoints(p); err != nil {
		return nil, err
	}
	w := plan.Wiring{}
	for _, pt := range s.points {
		w.Ready, w.Done = append(w.Ready, pt.ready), append(w.Done, pt.done)
	}
	for _, r := range s.runs {
		w.Gradients = append(w.Gradients, plan.Insertion{Bytes: r.after, Steps: r.before})
	}
	if err := p.BindWired(arena, s.state, w); err != nil {
		return nil, fmt.Errorf("gradient sum: %w", err)
	}
	pass, size := &Pass{sync: s, plan: p}, s.group.Size()
	for i, e := range p.Exchanges() {
		op := s.points[i].op(e, size)
		if err := op.Check(size); err != nil {
			return nil, err
		}
		if e.Phase == graph.Forward {
			pass.forward = append(pass.forward, op)
		} else {
			pass.backward = append(pass.backward, op)
		}
	}
	for _, name := range p.InputNames() {
		if name == SamplesInput {
			pass.samples, _, _ = p.Input(name)
		}
	}
	if n := int64(4 * size); pass.samples.Buffer != nil && pass.samples.Bytes != n {
		return nil, fmt.Errorf("gradient sum: input %s: got %d bytes, want an i32 for each of %d ranks", SamplesInput,
			pass.samples.Bytes, size)
	}
	return pass, nil
}

// takePoints creates the events for the exchanges of the first plan, and checks that later plans have the same
// exchanges. The ranks of a group may change between two plans, so a point does not store the number of ranks.
func (s *Sync) takePoints(p *plan.Plan) error {
	exchanges := p.Exchanges()
	if len(exchanges) > 0 && s.group.Stats == nil {
		return errors.New(
			"gradient sum: the plan exchanges statistics with other ranks, but got no communicator for statistics")
	}
	if s.points == nil {
		for _, e := range exchanges {
			e.Region, e.Ranks = device.Region{}, 0
			pt := point{Exchange: e, span: &span{}}
			var err error
			if pt.ready, err = s.event(); err != nil {
				return err
			}
			if pt.done, err = s.event(); err != nil {
				return err
			}
			s.points, s.met = append(s.points, pt), append(s.met, false)
		}
	}
	if len(exchanges) != len(s.points) {
		return fmt.Errorf("gradient sum: got a plan with %d exchanges, want the %d of the first plan", len(exchanges),
			len(s.points))
	}
	for i, e := range exchanges {
		if size := s.group.Size(); !e.Sum && e.Ranks != size {
			return fmt.Errorf("gradient sum: %s: the graph is built for %d ranks, want %d", e.Name, e.Ranks, size)
		}
		if e.Region, e.Ranks = (device.Region{}), 0; e != s.points[i].Exchange {
			return fmt.Errorf("gradient sum: exchange %d: got %+v, want the first plan's %+v", i, e,
				s.points[i].Exchange)
		}
	}
	return nil
}

// op returns the communicator's operation at the point, in the memory of a plan.
func (pt *point) op(e plan.Exchange, ranks int) collective.Op {
	after, done := timed(pt.ready, pt.done, pt.span)
	if e.Sum {
		return collective.AllReduce{Name: e.Name, Buffer: e.Region, DType: e.DType, After: after, Done: done}
	}
	counts := make([]int64, ranks)
	for i := range counts {
		counts[i] = int64(e.Elements)
	}
	return collective.AllGather{Name: e.Name, Buffer: e.Region, DType: e.DType, Counts: counts, After: after,
		Done: done}
}

// Forward runs the forward pass, including the exchanges of batch normalisation.
func (p *Pass) Forward(stream device.Stream) error {
	p.sync.watch(stream)
	err := p.sync.sendShares(stream, p.samples)
	if err == nil {
		err = p.sync.meet(stream, p.forward, 0)
	}
	if err == nil {
		err = p.plan.Forward(stream)
	}
	return p.sync.after(err)
}

// Backward runs the backward pass. The parameter last is true for the last micro-batch of a step. The sums over ranks
// then start during the pass, and Finish waits for these sums.
func (p *Pass) Backward(stream device.Stream, last bool) error {
	s := p.sync
	err := s.meet(stream, p.backward, len(p.forward))
	overlap := last && !s.opts.Sequential
	if err == nil && overlap {
		err = s.begin()
	}
	if err == nil && overlap {
		err = p.plan.BackwardFinal(stream)
	} else if err == nil {
		err = p.plan.Backward(stream)
	}
	if err == nil && last && s.opts.Sequential {
		if err = stream.Run(s.tail); err == nil {
			err = s.begin()
		}
	}
	return s.after(err)
}

// RunTimed runs prepare, forward and backward, including exchanges. It adds the times of the launches to elapsed, like
// plan.Plan.RunTimed. It does not sum gradients over ranks. All ranks call it.
func (p *Pass) RunTimed(stream device.Stream, elapsed []time.Duration) error {
	s := p.sync
	err := s.sendShares(stream, p.samples)
	if err == nil {
		err = s.meet(stream, p.forward, 0)
	}
	if err == nil {
		err = s.meet(stream, p.backward, len(p.forward))
	}
	if err == nil {
		err = p.plan.RunTimed(stream, elapsed)
	}
	s.takeExchanges() // discard the times, because they do not belong to a step
	return s.after(err)
}

// watch records, before the first pass of a step, how long the stream has been blocked so far.
func (s *Sync) watch(stream device.Stream) {
	if w, ok := stream.(device.WaitingStream); ok && s.stream == nil {
		s.stream = w
		s.waitedBefore, _ = w.Waited()
	}
}

// meet enqueues the exchanges of one pass. The parameter first is the position of the pass's first exchange in
// s.points. On an asynchronous device the same pass of the previous micro-batch may still run; meet resets its events
// only after that pass has ended.
func (s *Sync) meet(stream device.Stream, ops []collective.Op, first int) error {
	if len(ops) > 0 && s.met[first] {
		if err := s.settle(stream); err != nil {
			return err
		}
	}
	for i := range ops {
		pt := &s.points[first+i]
		s.met[first+i] = true
		s.takeSpan(pt)
		if err := errors.Join(pt.ready.Reset(), pt.done.Reset()); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if err := s.group.Stats.Enqueue(op); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the stream has finished all passes.
func (s *Sync) settle(stream device.Stream) error {
	clear(s.met)
	return stream.Sync()
}

// begin enqueues the all-reduces of a step. In Sequential mode their input events are already complete.
func (s *Sync) begin() error {
	for _, r := range s.runs {
		r.span.reset()
		var err error
		if !s.opts.Sequential {
			err = r.ready.Reset()
		}
		if err := errors.Join(err, r.reduced.Reset()); err != nil {
			return err
		}
	}
	for _, r := range s.runs {
		if err := s.group.Grads.Enqueue(r.op); err != nil {
			return err
		}
	}
	return nil
}

// after returns nil if the pass succeeded and the communicator of the exchanges has no error. Otherwise it aborts the
// communicators and returns the cause.
func (s *Sync) after(err error) error {
	if err == nil && s.group.Stats != nil {
		err = s.group.Stats.Err()
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}
