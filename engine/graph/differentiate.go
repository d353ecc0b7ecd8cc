package graph

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rule appends the nodes that compute the gradients of a node's inputs. d[i] is the list of contributions to the
// gradient of output i, empty if nothing depends on it; need(i) says whether input i wants one. It returns
// one gradient an input, nil where there is none.
type rule func(g *Graph, n *Node, d [][]*Value, need func(i int) bool) []*Value

// Differentiate appends the gradient of sum(loss)·scale with regard to every parameter that is not frozen: loss is the per-sample loss of
// SoftmaxCrossEntropy, scale a value of shape (1) that is read at each run (1/global count, times the loss scale).
func (g *Graph) Differentiate(loss, scale *Value) {
	if loss.Node == nil {
		fail(loss.Name, "differentiate: the loss is not computed")
	}
	if len(g.Gradients) > 0 {
		fail(loss.Name, "differentiate: the graph has gradients already")
	}
	g.phase = Backward
	defer func() { g.phase = Forward }()
	active, first := g.dependOnParams(), g.firstReaders()
	contributions := map[*Value][]*Value{loss: {scale}}
	nodes := g.Nodes // rules append to g.Nodes; the forward ones are fixed here
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		g.contribute(n, contributions, active)
		for _, in := range n.In {
			if at, ok := first[in]; ok && at == i { // no node before this one can contribute to the parameter any more
				g.finish(in, contributions[in])
				delete(first, in)
			}
		}
	}
	g.orderGradients()
}

// orderGradients lists the gradients as the readers of their parameters come in the backward pass, whether a reader takes the parameter or its copy
// in the compute type: the order is the same in all compute types. Operands of one node keep their order.
func (g *Graph) orderGradients() {
	type use struct{ node, operand int }
	first := map[*Value]use{}
	for i, n := range g.Nodes {
		if isCopyOfParam(n) {
			continue
		}
		for operand, in := range n.In {
			if in.Node != nil && isCopyOfParam(in.Node) {
				in = in.Node.In[0]
			}
			if _, ok := first[in]; !ok && in.Role == Param {
				first[in] = use{i, operand}
			}
		}
	}
	slices.SortStableFunc(g.Gradients, func(a, b Gradient) int {
		x, y := first[a.Param], first[b.Param]
		return cmp.Or(cmp.Compare(y.node, x.node), cmp.Compare(x.operand, y.operand))
	})
}

// isCopyOfParam reports whether n only converts the type of a parameter.
func isCopyOfParam(n *Node) bool {
	return n.Op.Kind() == (device.Reorder{}).Kind() && n.In[0].Role == Param
}

// contribute appends the gradient of n, if the loss depends on n, and notes what it contributes to the gradients of n's inputs.
func (g *Graph) contribute(n *Node, contributions map[*Value][]*Value, active map[*Value]bool) {
	d, reached := make([][]*Value, len(n.Out)), false
	for j, out := range n.Out {
		d[j] = contributions[out]
		reached = reached || len(d[j]) > 0
	}
	if !reached {
		return
	}
	r := rules[n.Op.Kind()]
	if own, ok := n.Op.(Differentiable); ok {
		r = ruleOf(own)
	}
	if r == nil {
		fail(n.Name, "differentiate: %s has no gradient: its type %T does not implement graph.Differentiable", n.Op.Kind(), n.Op)
	}
	need := func(i int) bool { return active[n.In[i]] }
	for j, grad := range r(g, n, d, need) {
		if grad == nil || !need(j) {
			continue
		}
		if grad.Follows == nil && grad.Node != nil {
			grad.Follows = n.In[j]
		}
		contributions[n.In[j]] = append(contributions[n.In[j]], grad)
	}
}

// finish records the gradient of parameter p, if the loss depends on it.
func (g *Graph) finish(p *Value, contributions []*Value) {
	if len(contributions) > 0 {
		g.Gradients = append(g.Gradients, Gradient{Param: p, Value: g.sum(p.Name+" gradient", p, contributions)})
	}
}

// firstReaders is, for each parameter that is read, the position of the first node that reads it.
func (g *Graph) firstReaders() map[*Value]int {
	first := map[*Value]int{}
	for i, n := range g.Nodes {
		for _, in := range n.In {
			if _, ok := first[in]; !ok && in.Role == Param {
				first[in] = i
			}
		}
	}
	return first
}

// dependOnParams is the set of values through which a loss depends on a parameter.
func (g *Graph) dependOnParams() map[*Value]bool {
	active := map[*Value]bool{}
	for _, p := range g.Params {
		active[p] = !p.Frozen
	}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			if active[in] && n.Op.Kind() != (device.BatchNormRunning{}).Kind() {
				for _, out := range n.Out {
					active[out] = active[out] || out.DType.IsFloat() || out.DType == tensor.Opaque
				}
				break
			}
		}
	}
	return active
}

// sum adds contributions to the gradient of value of; nil for none. Where they differ in type (a bf16 copy of a parameter has
// f32 gradients as a weight and bf16 ones as an operand of something else) the sum is of the wider one.
func (g *Graph) sum(name string, of *Value, ds []*Value) *Value {
	if len(ds) == 0 {
		return nil
	}
	total := ds[0]
	for _, d := range ds[1:] {
		if wide := d.DType; wide.Size() > total.DType.Size() {
			total = g.Cast(name+" widened", total, wide)
		} else if wide = total.DType; wide != d.DType {
			d = g.Cast(name+" widened", d, wide)
		}
		total = g.Binary(name+" sum", device.Add, total, d)
		total.Follows = of
	}
	return total
}
