package graph

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Layers returns the number of layers so far: 1 plus the number of calls of NextLayer.
func (g *Graph) Layers() int { return g.layer + 1 }

// Recompute makes the backward pass recompute the activations of the first layers of the model (activation
// checkpointing). The parameter layers is the number of these layers. Between the passes, memory then holds only the
// inputs of these layers. The recomputed values are bit-equal, because the same ops compute them from the same inputs.
// Call Recompute after the last NextLayer and before Differentiate.
//
// The last layer is never recomputed. The backward pass starts with this layer, so recomputing it would save no memory.
// Recomputed therefore never counts it.
//
// Nodes that update states and exchanges with other ranks run only once: their results are kept, not recomputed.
func (g *Graph) Recompute(layers int) { g.recompute = min(layers, g.Layers()-1) }

// Recomputed returns the number of layers that the backward pass recomputes.
func (g *Graph) Recomputed() int { return g.recompute }

// replay contains the values of one layer that the backward pass recomputes.
type replay struct {
	layer  int // number of the layer
	values map[*Value]*Value
}

// replayed returns the node whose values the gradient of n reads: n, or a node with recomputed values. When the
// backward pass reaches a layer, replayed appends the nodes that recompute the layer. A plan runs only the appended
// nodes that have readers.
func (g *Graph) replayed(n *Node, forward []*Node, again *replay) *Node {
	if n.Layer >= g.recompute || !repeatable(n) {
		return n
	}
	if again.values == nil || again.layer != n.Layer {
		again.layer, again.values = n.Layer, map[*Value]*Value{}
		g.repeat(forward, again)
	}
	return &Node{Name: n.Name, Op: n.Op, In: again.of(n.In), Out: again.of(n.Out), Phase: n.Phase, Layer: n.Layer}
}

// repeat appends copies of the nodes of the layer again.layer, and records their values in again.values.
func (g *Graph) repeat(forward []*Node, again *replay) {
	for _, n := range forward {
		if n.Layer != again.layer || !repeatable(n) {
			continue
		}
		out := g.Apply(n.Name+" again", n.Op, again.of(n.In)...)
		out[0].Node.Recomputed = true
		for i, v := range n.Out {
			again.values[v], g.recomputed[out[i]] = out[i], v
			if ranks := g.synced[v]; ranks != nil {
				g.synced[out[i]] = ranks
			}
		}
	}
}

// of returns the given values. It replaces each value of the forward pass that has been recomputed by the recomputed
// value.
func (r *replay) of(values []*Value) []*Value {
	out := slices.Clone(values)
	for i, v := range out {
		if again := r.values[v]; again != nil {
			out[i] = again
		}
	}
	return out
}

// original returns the value of the forward pass that v recomputes, or v.
func (g *Graph) original(v *Value) *Value {
	if of := g.recomputed[v]; of != nil {
		return of
	}
	return v
}

// repeatable reports whether a copy of n computes the same values and has no other effect.
func repeatable(n *Node) bool {
	switch n.Op.(type) {
	case AllReduce, AllGather:
		return false
	}
	if isCopyOfParam(n) {
		return false
	}
	return !slices.ContainsFunc(device.Aliases(n.Op), func(a device.Alias) bool { return n.In[a.In].Role == State })
}
