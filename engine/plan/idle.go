package plan

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// CompileIdle compiles a plan for a rank with a share of 0 samples. The rank takes part in the exchanges of g, and
// updates its running statistics from the results of the exchanges. Its gradients are zero. g is the graph for any
// number of samples. layout is the model's parameter layout. The plan has no outputs, and only those inputs of g that
// are equal on all ranks.
func CompileIdle(cache *Cache, g *graph.Graph, layout *Params) (_ *Plan, err error) {
	if err := layout.check(g); err != nil {
		return nil, err
	}
	c := newCompiler(cache, g, layout)
	defer c.giveUp(&err)
	c.idle = true
	c.declare()
	nodes := c.common()
	split := slices.IndexFunc(nodes, func(n *graph.Node) bool { return n.Phase == graph.Backward })
	if split < 0 {
		split = len(nodes)
	}
	for i, n := range nodes {
		if i == split {
			if err := c.clearGradients(); err != nil {
				return nil, err
			}
		}
		if err := c.compileNode(n); err != nil {
			return nil, err
		}
	}
	if split == len(nodes) {
		if err := c.clearGradients(); err != nil {
			return nil, err
		}
	}
	return c.finish(layout), nil
}

// clearGradients appends a launch that zeroes the gradients at the start of the backward pass.
func (c *compiler) clearGradients() error {
	l, err := c.zeros("gradients of no samples", &storage{buffer: inGrads, bytes: c.fixed.Bytes, pinned: true},
		graph.Backward)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	c.step = append(c.step, l)
	return nil
}

// common returns the live nodes that a rank without samples runs. These are the exchanges, and the nodes that read only
// results of exchanges, states, and inputs that are equal on all ranks.
func (c *compiler) common() []*graph.Node {
	var nodes []*graph.Node
	shared := map[*graph.Value]bool{}
	for _, n := range c.live() {
		if IsExchange(n.Op) || fromShared(n, shared) {
			nodes = append(nodes, n)
			for _, out := range n.Out {
				shared[out] = true
			}
		}
	}
	return nodes
}

// fromShared reports whether n reads at least one result of an exchange, and otherwise only inputs and states.
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

// bringNothing prepares the part of a rank without samples in an exchange: zeros for a sum, and unused values for a
// gather.
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

// zeros returns a launch that sets mem to zero.
func (c *compiler) zeros(name string, mem *storage, phase graph.Phase) (*launch, error) {
	spec := device.Spec(tensor.U8, int(mem.bytes))
	op := device.Fill{DType: tensor.U8, Shape: spec.Shape}
	k, err := c.kernels.Compile(op, nil, []device.TensorSpec{spec})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &launch{name: name, op: op, kernel: k, phase: phase}
	l.out = []*version{{spec: spec, mem: mem, producer: l}}
	return l, nil
}
