package graph

import (
	"cmp"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rule appends the nodes that compute the gradients of n's inputs. It returns one gradient per input, or nil for inputs
// that need none. d[i] lists the contributions to the gradient of output i, and is empty if the loss does not depend on
// output i. The function need reports whether input i needs a gradient.
type rule func(g *Graph, n *Node, d [][]*Value, need func(i int) bool) []*Value

// Differentiate appends the gradient of sum(loss)·scale for every parameter that is not frozen. loss (N) is the loss of
// each sample, from SoftmaxCrossEntropy. The host sets scale (1) before each run: the loss scale divided by the number
// of samples of the global batch.
//
// loss may also be any other computed value. The operand scale then has the shape of this value. The host sets it to
// the gradient of an objective with respect to this value.
func (g *Graph) Differentiate(loss, scale *Value) {
	g.DifferentiateTerms(Term{Loss: loss, Scale: scale})
}

// Term is a loss with its scale; see Differentiate.
type Term struct {
	Loss, Scale *Value
	// Weights (N) are factors by which the losses of the samples are multiplied; nil: all are 1. Only losses of
	// SoftmaxCrossEntropy may have weights.
	Weights *Value
}

// DifferentiateTerms is like Differentiate, but for the sum of several losses. Each loss has its own scale.
func (g *Graph) DifferentiateTerms(terms ...Term) {
	contributions := map[*Value][]*Value{}
	g.weights = map[*Value]*Value{}
	for _, t := range terms {
		if t.Loss.Node == nil {
			fail(t.Loss.Name, "differentiate: the loss is not computed")
		}
		contributions[t.Loss] = append(contributions[t.Loss], t.Scale)
		if t.Weights == nil {
			continue
		}
		if _, ok := t.Loss.Node.Op.(device.SoftmaxCrossEntropy); !ok || !t.Weights.Shape.Equal(t.Loss.Shape) {
			fail(t.Loss.Name, "differentiate: got weights of shape %v for a loss of %s of shape %v, want one per sample of a SoftmaxCrossEntropy",
				t.Weights.Shape, t.Loss.Node.Op.Kind(), t.Loss.Shape)
		}
		g.weights[t.Loss] = t.Weights
	}
	if len(g.Gradients) > 0 {
		fail(terms[0].Loss.Name, "differentiate: the graph has gradients already")
	}
	g.phase = Backward
	defer func() { g.phase = Forward }()
	active, first := g.dependOnParams(), g.firstReaders()
	nodes := g.Nodes // rules append to g.Nodes; only the forward nodes are visited
	var again replay
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		g.contribute(n, g.replayed(n, nodes, &again), contributions, active)
		for _, in := range n.In {
			if at, ok := first[in]; ok && at == i { // no earlier node can contribute to this gradient
				g.finish(in, contributions[in])
				delete(first, in)
			}
		}
	}
	g.orderGradients()
}

// orderGradients lists the gradients in the order in which the backward pass visits the readers of their parameters. A
// node that reads the copy of a parameter in the compute type counts as a reader of the parameter, so the order is the
// same in all compute types. The gradients of one node's operands are in the order of the operands.
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

// contribute appends the nodes that compute the gradients of n's inputs, and records these gradients as contributions.
// The parameter again is the node whose values these nodes read: n itself or the node that recomputes n. contribute
// appends nothing if the loss does not depend on n.
func (g *Graph) contribute(n, again *Node, contributions map[*Value][]*Value, active map[*Value]bool) {
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
		fail(n.Name, "differentiate: %s has no gradient: its type %T does not implement graph.Differentiable",
			n.Op.Kind(), n.Op)
	}
	need := func(i int) bool { return active[n.In[i]] }
	for j, grad := range r(g, again, d, need) {
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
		g.Gradients = append(g.Gradients, Gradient{Param: p, Value: g.accumulate(p, contributions)})
	}
}

// accumulate returns the sum of the contributions to the gradient of parameter p. If the op of the last contribution is
// a device.Accumulator (tied embeddings), this op adds its result to the sum of the other contributions in place. The
// addition then needs no third buffer.
func (g *Graph) accumulate(p *Value, contributions []*Value) *Value {
	last := contributions[len(contributions)-1]
	if len(contributions) > 1 && last.Node != nil {
		op, ok := last.Node.Op.(device.Accumulator)
		// own reports whether only this node reads the sum of all contributions but the last
		own := len(contributions) > 2 || ownsGradient(contributions[0])
		if rest := g.sum(p.Name+" gradient", p, contributions[:len(contributions)-1]); ok && own &&
			rest.DType == last.DType {
			// No node reads the value last any more, so plans do not run the node that computes it.
			total := g.one(last.Node.Name, op.Accumulating(), append(slices.Clone(last.Node.In), rest)...)
			total.Follows = p
			return total
		}
	}
	return g.sum(p.Name+" gradient", p, contributions)
}

// ownsGradient reports whether v is the output of an op that computes the gradient of one parameter only.
func ownsGradient(v *Value) bool {
	if v.Node == nil {
		return false
	}
	switch v.Node.Op.(type) {
	case device.LinearDiffWeights, device.LinearCrossEntropyDiff, device.EmbeddingDiff:
		return true
	}
	return false
}

// firstReaders returns the position of the first node that reads each parameter.
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

// dependOnParams returns the values through which a loss depends on a parameter.
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

// sum returns the sum of ds, the contributions to a value's gradient, or nil if there are none. The parameter of is
// that value. If the contributions differ in type, the sum has the wider type. For example, a parameter has a copy in
// bf16. An op that uses this copy as a weight contributes an f32 gradient. An op that uses it as an ordinary operand
// contributes a bf16 gradient.
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
		total.Follows = g.original(of) // a plan may leave out the node of the recomputed value
	}
	return total
}
