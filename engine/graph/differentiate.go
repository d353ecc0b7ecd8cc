package graph

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rule appends the nodes that compute the gradients of a node's inputs. d[i] is the list of contributions to the
// gradient of output i, empty if nothing depends on it; need(i) says whether input i wants one. It returns
// one gradient an input, nil where there is none.
type rule func(g *Graph, n *Node, d [][]*Value, need func(i int) bool) []*Value

// Differentiate appends the gradient of sum(loss)·scale with regard to every parameter: loss is the per-sample loss of
// SoftmaxCrossEntropy, scale a value of shape (1) that is read at each run (1/global count, times the loss scale).
func (g *Graph) Differentiate(loss, scale *Value) {
	if loss.Node == nil {
		fail(loss.Name, "differentiate: the loss is not computed")
	}
	g.phase = Backward
	defer func() { g.phase = Forward }()
	active := g.dependOnParams()
	contributions := map[*Value][]*Value{loss: {scale}}
	nodes := g.Nodes // rules append to g.Nodes; the forward ones are fixed here
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		d, reached := make([][]*Value, len(n.Out)), false
		for j, out := range n.Out {
			d[j] = contributions[out]
			reached = reached || len(d[j]) > 0
		}
		if !reached {
			continue
		}
		r := rules[n.Op.Kind()]
		if r == nil {
			fail(n.Name, "differentiate: %s has no gradient", n.Op.Kind())
		}
		need := func(i int) bool { return active[n.In[i]] }
		for j, grad := range r(g, n, d, need) {
			if grad == nil || !need(j) {
				continue
			}
			to := n.In[j]
			if grad.Follows == nil && grad.Node != nil {
				grad.Follows = to
			}
			contributions[to] = append(contributions[to], grad)
			if to.Role == Param {
				g.finish(to, contributions, nodes[:i])
			}
		}
	}
}

// finish records the gradient of parameter p once no node of earlier can contribute any more.
func (g *Graph) finish(p *Value, contributions map[*Value][]*Value, earlier []*Node) {
	for _, n := range earlier {
		for _, in := range n.In {
			if in == p {
				return
			}
		}
	}
	g.Gradients = append(g.Gradients, Gradient{Param: p, Value: g.sum(p.Name+" gradient", contributions[p])})
}

// dependOnParams is the set of values through which a loss depends on a parameter.
func (g *Graph) dependOnParams() map[*Value]bool {
	active := map[*Value]bool{}
	for _, p := range g.Params {
		active[p] = true
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

// sum adds contributions to one gradient; nil for none.
func (g *Graph) sum(name string, ds []*Value) *Value {
	if len(ds) == 0 {
		return nil
	}
	total := ds[0]
	for _, d := range ds[1:] {
		follows := total.Follows
		total = g.Binary(name+" sum", device.Add, total, d)
		total.Follows = follows
	}
	return total
}
