package graph

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Ops of package device are known to this package, to the planner and to the devices. An op from outside brings what they
// know of those: it implements the interfaces below, and device.Computer if it has a kernel in Go.

// Differentiable is implemented by ops from outside package device that bring their gradient.
type Differentiable interface {
	device.Op
	// Gradient appends the nodes that compute the gradients of n's inputs. diff[j] is the gradient of output j, nil where the
	// loss does not depend on it; need(i) reports whether input i wants a gradient. It returns one gradient for each input, of
	// the input's shape, nil where there is none.
	Gradient(g *Graph, n *Node, diff []*Value, need func(i int) bool) []*Value
}

// Decomposable is implemented by ops from outside package device that are computed by others wherever a device has no
// kernel for them.
type Decomposable interface {
	device.Op
	// Decompose appends the nodes that compute the op for the inputs in, and returns the op's outputs.
	Decompose(g *Graph, in []*Value) []*Value
}

// ruleOf is the gradient that an op brings.
func ruleOf(op Differentiable) rule {
	return func(g *Graph, n *Node, d [][]*Value, need func(i int) bool) []*Value {
		diffs := make([]*Value, len(d))
		for j, contributions := range d {
			diffs[j] = g.sum(n.Name, n.Out[j], contributions)
		}
		grads := op.Gradient(g, n, diffs, need)
		if len(grads) != len(n.In) {
			fail(n.Name, "differentiate: %s: got %d gradients, want %d, one for each input", op.Kind(), len(grads), len(n.In))
		}
		for i, grad := range grads {
			if grad != nil && !grad.Shape.Equal(n.In[i].Shape) {
				fail(n.Name, "differentiate: %s: gradient of input %d: got shape %v, want %v", op.Kind(), i, grad.Shape, n.In[i].Shape)
			}
		}
		return grads
	}
}

// Decompose returns the nodes that stand for n and the values of n's outputs that they compute. The nodes belong to no graph.
func Decompose(op Decomposable, n *Node) (nodes []*Node, outs []*Value, err error) {
	g, err := Build(func(g *Graph) { outs = op.Decompose(g, n.In) })
	if err != nil {
		return nil, nil, err
	}
	if len(outs) != len(n.Out) {
		return nil, nil, fmt.Errorf("%s: the decomposition has %d outputs, want %d", op.Kind(), len(outs), len(n.Out))
	}
	for j, out := range outs {
		if want := n.Out[j]; out == nil || out.DType != want.DType || !out.Shape.Equal(want.Shape) {
			return nil, nil, fmt.Errorf("%s: the decomposition's output %d: got %v, want %v%v", op.Kind(), j, out, want.DType, want.Shape)
		}
	}
	if len(g.Params) > 0 || len(g.States) > 0 || len(g.Inputs) > 0 {
		return nil, nil, fmt.Errorf("%s: the decomposition declares parameters, states or inputs, want none", op.Kind())
	}
	return g.Nodes, outs, nil
}
