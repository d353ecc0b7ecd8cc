package graph

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// This package, the planner and the devices support only the ops of package device. An op from outside the module
// implements the interfaces below. It also implements device.Computer if it has a kernel in Go.

// Differentiable is implemented by ops from outside package device that define their gradient.
type Differentiable interface {
	device.Op
	// Gradient appends the nodes that compute the gradients of n's inputs. It returns one gradient per input, of the
	// input's shape, or nil for inputs that need none. diff[j] is the gradient of output j, or nil if the loss does not
	// depend on output j. The function need reports whether input i needs a gradient.
	Gradient(g *Graph, n *Node, diff []*Value, need func(i int) bool) []*Value
}

// Decomposable is implemented by an op from outside package device that has a decomposition: simpler ops that compute
// it on devices without a kernel for the op.
type Decomposable interface {
	device.Op
	// Decompose appends the nodes that compute the op from its inputs, and returns the op's outputs. The parameter in
	// lists the inputs.
	Decompose(g *Graph, in []*Value) []*Value
}

// ruleOf returns the gradient rule of op.
func ruleOf(op Differentiable) rule {
	return func(g *Graph, n *Node, d [][]*Value, need func(i int) bool) []*Value {
		diffs := make([]*Value, len(d))
		for j, contributions := range d {
			diffs[j] = g.sum(n.Name, n.Out[j], contributions)
		}
		grads := op.Gradient(g, n, diffs, need)
		if len(grads) != len(n.In) {
			fail(n.Name, "differentiate: %s: got %d gradients, want %d, one for each input", op.Kind(), len(grads),
				len(n.In))
		}
		for i, grad := range grads {
			if grad != nil && !grad.Shape.Equal(n.In[i].Shape) {
				fail(n.Name, "differentiate: %s: gradient of input %d: got shape %v, want %v", op.Kind(), i, grad.Shape,
					n.In[i].Shape)
			}
		}
		return grads
	}
}

// Decompose returns nodes that replace n, and their values that replace n's outputs. The nodes belong to no graph.
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
			return nil, nil, fmt.Errorf("%s: the decomposition's output %d: got %v, want %v%v", op.Kind(), j, out,
				want.DType, want.Shape)
		}
	}
	if len(g.Params) > 0 || len(g.States) > 0 || len(g.Inputs) > 0 {
		return nil, nil, fmt.Errorf("%s: the decomposition declares parameters, states or inputs, want none", op.Kind())
	}
	return g.Nodes, outs, nil
}
