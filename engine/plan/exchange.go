package plan

import (
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Exchange is a point of a pass at which ranks exchange values. All plans of a model have the same exchanges in the
// same order, regardless of their number of samples.
type Exchange struct {
	Name     string
	Phase    graph.Phase
	Sum      bool // true: sum over ranks, in place; false: all-gather
	DType    tensor.DType
	Elements int // number of elements from one rank
	Ranks    int // number of ranks of an all-gather; 0 for sums
	// Region is the memory of the exchanged values while the plan is bound. For a sum, it contains Elements values. For
	// an all-gather, it contains Elements values of each rank, in the order of ranks.
	Region device.Region
}

// Wiring connects a plan to the other ranks when the plan is bound.
type Wiring struct {
	// Ready and Done contain one event per exchange of Plan.Exchanges. The plan records Ready when this rank's values
	// are in place, and waits for Done before it reads the result.
	Ready, Done []device.Event
	// Gradients are additional steps of BackwardFinal, ascending by Bytes.
	Gradients []Insertion
}

// Insertion holds steps that run as soon as the first Bytes of the flat gradient buffer are final. For a bucket, the
// steps add the gradients of earlier micro-batches, convert the bucket, and record the event that starts its
// all-reduce. If Bytes is 0, the steps run before the backward pass.
type Insertion struct {
	Bytes int64
	Steps []device.Step
}

// exchange compiles a graph's AllGather or AllReduce. Its operands are adjacent in one storage. If a launch computes an
// operand only for this exchange, the launch writes the operand directly to this storage. Other operands are copied.
func (c *compiler) exchange(n *graph.Node) error {
	l := &launch{name: n.Name, op: n.Op, phase: n.Phase}
	mem := &storage{pinned: true}
	var first, piece int64 // offset of this rank's values in mem, and size of one value, bytes
	if op, ok := n.Op.(graph.AllGather); ok {
		s := n.Out[0].Spec()
		mem.bytes = s.Size()
		row := mem.bytes / int64(op.Ranks)
		first, piece = row*int64(op.Rank), row/int64(s.Shape[1])
		l.out = []*version{{spec: s, mem: mem, producer: l}}
	} else {
		piece = n.Out[0].Spec().Size()
		mem.bytes = piece * int64(len(n.Out))
		for i, v := range n.Out {
			l.out = append(l.out, &version{spec: v.Spec(), mem: mem, at: piece * int64(i), producer: l})
		}
	}
	var err error
	if c.idle {
		err = c.bringNothing(l, mem)
	} else {
		err = c.bring(n, l, mem, first, piece)
	}
	if err != nil {
		return err
	}
	for i, ver := range l.out {
		c.add(n.Out[i], ver)
	}
	c.step = append(c.step, l)
	return nil
}

// bring writes the operands of exchange l to mem, the i-th at offset first + i·piece.
func (c *compiler) bring(n *graph.Node, l *launch, mem *storage, first, piece int64) error {
	for i, v := range n.In {
		have, err := c.operand(n, i, v.Spec())
		if err != nil {
			return err
		}
		at := first + piece*int64(i)
		if c.computedFor(v, have) {
			have.mem, have.at = mem, at
		} else {
			cp, err := c.reorder("copy of "+v.Name, have, v.Spec(), n.Phase)
			if err != nil {
				return err
			}
			have = cp.out[0]
			have.mem, have.at = mem, at
			c.step = append(c.step, cp)
		}
		have.readers++
		l.in = append(l.in, have)
	}
	return nil
}

// computedFor reports whether a launch computes v only for this exchange. The exchange may then choose the memory of v.
func (c *compiler) computedFor(v *graph.Value, have *version) bool {
	l := have.producer
	if l == nil || l.kernel == nil || c.readers[v] != 1 || have.readers > 0 || have.mem.pinned ||
		have.mem.buffer != inArena {
		return false
	}
	for i, out := range l.out {
		if out == have { // have is the output itself, not a reshaped view of the output
			for _, a := range device.Aliases(l.op) {
				if a.Out == i {
					return false
				}
			}
			return true
		}
	}
	return false
}

// IsExchange reports whether an op exchanges values with other ranks.
func IsExchange(op device.Op) bool {
	switch op.(type) {
	case graph.AllGather, graph.AllReduce:
		return true
	}
	return false
}

// hideExchanges moves one costly launch from before each exchange to after it. The exchange must not depend on this
// launch. The moved launch then runs while the exchange is in progress. In the backward pass, the moved launch is the
// weight gradient of the layer after a normalisation. Only one launch is moved, because its operands stay in memory
// longer.
func (c *compiler) hideExchanges() {
	begin := 0
	for x, l := range c.step {
		if l.kernel != nil {
			continue
		}
		for begin < x && c.step[begin].phase != l.phase {
			begin++
		}
		later := c.unneeded(l, c.step[begin:x])
		var order []*launch
		for _, before := range c.step[begin:x] {
			if !slices.Contains(later, before) {
				order = append(order, before)
			}
		}
		order = append(append(order, l), later...)
		copy(c.step[begin:], order)
		begin = x + 1 - len(later)
	}
}

// unneeded considers only the launches before exchange l on which l does not depend. It returns the last costly one of
// these launches, and all that follow it.
func (c *compiler) unneeded(l *launch, before []*launch) []*launch {
	needed := map[*launch]bool{}
	l.ancestors(needed)
	var out []*launch
	for i := len(before) - 1; i >= 0; i-- {
		b := before[i]
		if needed[b] || len(device.Aliases(b.op)) > 0 {
			continue
		}
		out = append(out, b)
		if _, costly := b.op.(device.Coster); costly {
			slices.Reverse(out)
			return out
		}
	}
	return nil
}

// ancestors adds every launch that l depends on to the set into.
func (l *launch) ancestors(into map[*launch]bool) {
	for _, v := range l.in {
		if p := v.producer; p != nil && p != l && !into[p] {
			into[p] = true
			p.ancestors(into)
		}
	}
}

// Exchanges returns the points at which this plan exchanges values with other ranks, in order.
func (p *Plan) Exchanges() []Exchange {
	var out []Exchange
	for _, l := range p.points() {
		v := l.out[0]
		e := Exchange{Name: l.name, Phase: l.phase, DType: v.spec.DType,
			Elements: int(v.mem.bytes / v.spec.DType.Size())}
		if op, ok := l.op.(graph.AllGather); ok {
			e.Ranks = op.Ranks
			e.Elements /= op.Ranks
		} else {
			e.Sum = true
		}
		if p.bound {
			e.Region = binder{arena: p.arena}.region(v.mem, 0, v.mem.bytes)
		}
		out = append(out, e)
	}
	return out
}

// points returns the launches that are exchanges.
func (p *Plan) points() []*launch {
	var out []*launch
	for _, launches := range [][]*launch{p.forward, p.backward} {
		for _, l := range launches {
			if l.kernel == nil {
				out = append(out, l)
			}
		}
	}
	return out
}

// gradientsFinal returns the index in p.backward of the last launch that writes or reads the first bytes of the
// gradient buffer; -1 if there is none. A reading launch counts, because a sum over ranks changes the gradients that it
// reads.
func (p *Plan) gradientsFinal(bytes int64) int {
	last := -1
	for i, l := range p.backward {
		for _, v := range slices.Concat(l.in, l.out) {
			if s := v.mem.root(); s.buffer == inGrads && s.offset < bytes {
				last = i
			}
		}
	}
	return last
}

// GradientTimes returns, for each trained parameter, the time from the start of the backward pass until its gradient is
// final. elapsed contains the times of RunTimed. The returned times never decrease, because a bucket waits for all
// earlier gradients.
func (p *Plan) GradientTimes(elapsed []time.Duration) []time.Duration {
	elapsed = elapsed[len(p.prepare)+len(p.forward):]
	out := make([]time.Duration, p.params.Trained)
	for i := range out {
		end := p.params.Bytes
		if i+1 < len(p.params.Params) {
			end = p.params.Params[i+1].Offset
		}
		for _, took := range elapsed[:p.gradientsFinal(end)+1] {
			out[i] += took
		}
	}
	return out
}
