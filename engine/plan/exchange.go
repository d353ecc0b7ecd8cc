package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Exchange is a point of a pass at which ranks exchange values. All plans of a model have the same exchanges, in the same
// order, whatever their number of samples.
type Exchange struct {
	Name     string
	Phase    graph.Phase
	Sum      bool // over ranks, in place; false: every rank gets what each rank has
	DType    tensor.DType
	Elements int // that one rank brings
	Ranks    int // of the gather, 0 for sums
	// Region is where they lie while the plan is bound: of a sum Elements, of a gather Elements for each rank, in the order of ranks.
	Region device.Region
}

// Wiring joins a plan to the other ranks when it is bound.
type Wiring struct {
	// Ready and Done have an event for each of Plan.Exchanges: the plan records Ready when this rank's values are in place,
	// and goes on to what needs the result when Done is complete.
	Ready, Done []device.Event
	// Gradients are steps that BackwardFinal runs besides, ascending by Bytes.
	Gradients []Insertion
}

// Insertion is steps that run as soon as the first Bytes of the flat gradient buffer are final: in a bucket's case, its
// addition to earlier micro-batches, its conversion, the event that starts its all-reduce. 0 bytes: before the backward pass.
type Insertion struct {
	Bytes int64
	Steps []device.Step
}

// exchange compiles a graph's AllGather or AllReduce. Its operands lie side by side in one piece of memory: who computes an
// operand for the exchange alone writes it there, others are copied.
func (c *compiler) exchange(n *graph.Node) error {
	l := &launch{name: n.Name, op: n.Op, phase: n.Phase}
	mem := &storage{pinned: true}
	var first, piece int64 // where this rank's values start, and the bytes of one
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

// bring puts the operands of exchange l into mem, the i-th at first + i·piece.
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

// computedFor reports whether v is computed for one reader alone, which may say where.
func (c *compiler) computedFor(v *graph.Value, have *version) bool {
	l := have.producer
	if l == nil || l.kernel == nil || c.readers[v] != 1 || have.readers > 0 || have.mem.pinned || have.mem.place != inArena {
		return false
	}
	for i, out := range l.out {
		if out == have { // not a reshaped view of it
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

// bringNothing lets a rank without samples take part: with zeros in a sum, with values that nobody reads in a gather.
func (c *compiler) bringNothing(l *launch, mem *storage) error {
	if _, gather := l.op.(graph.AllGather); gather {
		return nil
	}
	zero, err := c.zeros(l.name+" zeros", mem, l.phase)
	if err != nil {
		return err
	}
	l.in = zero.out
	c.step = append(c.step, zero)
	return nil
}

// zeros is a launch that clears mem.
func (c *compiler) zeros(name string, mem *storage, phase graph.Phase) (*launch, error) {
	spec := device.Spec(tensor.U8, int(mem.bytes))
	op := device.Fill{DType: tensor.U8, Shape: spec.Shape}
	k, err := c.cache.Compile(op, nil, []device.TensorSpec{spec})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &launch{name: name, op: op, kernel: k, phase: phase}
	l.out = []*version{{spec: spec, mem: mem, producer: l}}
	return l, nil
}

// CompileIdle plans the pass of a rank whose share is 0 samples: it takes part in the exchanges of g, which is the graph for any
// number of samples, keeps the statistics that come out of them, and its gradients are zero. fixed is the model's parameter
// layout. Of g's inputs it has those alone that hold for all ranks, and no outputs.
func CompileIdle(cache *Cache, g *graph.Graph, fixed *Params) (*Plan, error) {
	if err := fixed.check(g); err != nil {
		return nil, err
	}
	c := newCompiler(cache, g, fixed)
	c.idle = true
	c.declare()
	nodes := c.common()
	for i, n := range nodes {
		if n.Phase == graph.Backward {
			nodes = nodes[i:]
			break
		}
		if err := c.compileNode(n); err != nil {
			return nil, err
		}
		if i == len(nodes)-1 {
			nodes = nil
		}
	}
	grads := &storage{place: inGrads, bytes: fixed.Bytes, pinned: true}
	zero, err := c.zeros("gradients of no samples", grads, graph.Backward)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	c.step = append(c.step, zero)
	for _, n := range nodes {
		if err := c.compileNode(n); err != nil {
			return nil, err
		}
	}
	return c.finish(fixed), nil
}

// common is the live nodes that a rank without samples runs: exchanges, and what is computed from their results, states and
// inputs that hold for all ranks.
func (c *compiler) common() []*graph.Node {
	var nodes []*graph.Node
	shared := map[*graph.Value]bool{}
	for _, n := range c.live() {
		if isExchange(n.Op) || fromShared(n, shared) {
			nodes = append(nodes, n)
			for _, out := range n.Out {
				shared[out] = true
			}
		}
	}
	return nodes
}

// fromShared reports whether n reads results of exchanges, and beside them inputs and states alone.
func fromShared(n *graph.Node, shared map[*graph.Value]bool) bool {
	any := false
	for _, in := range n.In {
		if !shared[in] && in.Role != graph.Input && in.Role != graph.State {
			return false
		}
		any = any || shared[in]
	}
	return any
}

func isExchange(op device.Op) bool {
	switch op.(type) {
	case graph.AllGather, graph.AllReduce:
		return true
	}
	return false
}

// Exchanges are the points at which this plan meets other ranks, in order.
func (p *Plan) Exchanges() []Exchange {
	var out []Exchange
	for _, l := range p.points() {
		v := l.out[0]
		e := Exchange{Name: l.name, Phase: l.phase, DType: v.spec.DType, Elements: int(v.mem.bytes / v.spec.DType.Size())}
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

// points are the launches that are exchanges.
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

// gradientsFinal is the position in the backward pass of the last launch that writes to the first bytes of the gradient buffer, or
// reads there what a sum over ranks would change; -1 if there is none.
func (p *Plan) gradientsFinal(bytes int64) int {
	last := -1
	for i, l := range p.backward {
		for _, v := range slices.Concat(l.in, l.out) {
			if s := v.mem.root(); s.place == inGrads && s.offset < bytes {
				last = i
			}
		}
	}
	return last
}

// GradientTimes is when the gradient of each trained parameter was final, counted from the start of the backward pass, by the
// times of a run as RunTimed gives them. It never falls from one parameter to the next: a bucket waits for all before it.
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
