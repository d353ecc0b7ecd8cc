package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// pair is the loss over a vocabulary and its gradient, which some devices compute with one op.
type pair struct {
	loss, diff *graph.Node
	both       *graph.Node // computes the outputs of loss and diff, in the backward pass
	tried      bool
	fused      bool // the device has the op of both
}

// fusable returns the pairs among nodes, by each of their two nodes. A pair is fusable if its gradient is the only node
// that reads a result of the loss, so that the loss may be computed in the backward pass.
func fusable(nodes []*graph.Node) map[*graph.Node]*pair {
	pairs := map[*graph.Node]*pair{}
	for _, diff := range nodes {
		op, ok := diff.Op.(device.LinearCrossEntropyDiff)
		if !ok || diff.In[4].Node != nil { // the factor of the loss must be known before the loss is compiled
			continue
		}
		const lse = 3
		loss := diff.In[lse].Node
		in := slices.Concat(diff.In[:lse], diff.In[lse+2:])
		if loss == nil || !slices.Contains(nodes, loss) || !slices.Equal(loss.In, in) ||
			readBesides(nodes, loss, diff) {
			continue
		}
		both := &graph.Node{Name: loss.Name, Op: device.LinearCrossEntropyBoth{Counted: op.Counted}, Phase: diff.Phase,
			Layer: diff.Layer, In: slices.Insert(in, lse, diff.In[4]), Out: slices.Concat(loss.Out[:2], diff.Out)}
		p := &pair{loss: loss, diff: diff, both: both}
		pairs[loss], pairs[diff] = p, p
	}
	return pairs
}

// readBesides reports whether a node other than except reads a result of n.
func readBesides(nodes []*graph.Node, n, except *graph.Node) bool {
	return slices.ContainsFunc(nodes, func(other *graph.Node) bool {
		return other != except && slices.ContainsFunc(other.In, func(v *graph.Value) bool { return v.Node == n })
	})
}

// try asks the device once whether it has the op. The operands of the loss must be compiled.
func (p *pair) try(c *compiler) error {
	if p.tried {
		return nil
	}
	p.tried = true
	in, out := c.request(p.both)
	_, err := c.kernels.Compile(p.both.Op, in, out)
	if p.fused = err == nil; !p.fused && !errors.Is(err, device.ErrUnsupported) {
		return fmt.Errorf("plan: %s on %s: %w", p.both.Name, c.cache.Device.Info().Name, err)
	}
	return nil
}

// instead returns the node to compile in place of n, a node of the pair; nil: none.
func (p *pair) instead(n *graph.Node) *graph.Node {
	switch {
	case !p.fused:
		return n
	case n == p.loss:
		return nil
	}
	return p.both
}
