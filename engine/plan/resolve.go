package plan

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// resolveParams fixes the canonical layouts, directs gradients to the gradient buffer, and adds the copies that kernels
// need.
func (c *compiler) resolveParams() (*Params, error) {
	params := c.fixed
	if params == nil {
		params = newParams(c.g, c.paramOrder(), c.canonical)
		params.plain = c.plainParams
	}
	for _, gr := range c.g.Gradients {
		i, _ := params.Find(gr.Param.Name)
		info := params.Params[i]
		grad := &version{spec: info.Spec, mem: &storage{buffer: inGrads, bytes: info.Spec.Size(), offset: info.Offset,
			pinned: true}}
		have := c.versions[gr.Value][0]
		if have.spec.Same(info.Spec) && have.mem.root().buffer == inArena && !have.mem.pinned {
			*have.mem.root() = *grad.mem
			continue
		}
		l, err := c.reorder("reorder "+gr.Param.Name+" gradient", have, info.Spec, graph.Backward)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		l.out[0] = grad
		at := len(c.step)
		if i := slices.Index(c.step, have.producer); i >= 0 {
			// insert directly after the producer, so that the all-reduce of the gradient need not wait for the rest of
			// the pass
			at = i + 1
		}
		c.step = slices.Insert(c.step, at, l)
	}
	for _, u := range c.uses {
		i, _ := params.Find(u.param.Name)
		info := params.Params[i]
		value := &version{spec: info.Spec, mem: &storage{buffer: inValues, bytes: info.Spec.Size(), offset: info.Offset,
			pinned: true}}
		if u.spec.Same(info.Spec) {
			*u.mem = *value.mem
			continue
		}
		l, err := c.reorder("prepare "+u.param.Name, value, u.spec, graph.Forward)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		l.out[0] = u.version
		c.prepare = append(c.prepare, l)
	}
	return params, nil
}

// paramOrder returns the parameters in the order in which the backward pass completes their gradients, then parameters
// without a gradient, then frozen parameters.
func (c *compiler) paramOrder() []*graph.Value {
	var order []*graph.Value
	seen := map[*graph.Value]bool{}
	for _, gr := range c.g.Gradients {
		order, seen[gr.Param] = append(order, gr.Param), true
	}
	for _, frozen := range []bool{false, true} {
		for _, p := range c.g.Params {
			if !seen[p] && p.Frozen == frozen {
				order = append(order, p)
			}
		}
	}
	return order
}

// canonical returns the canonical spec of parameter p, which has the layout of its gradient. The layout is plain if p
// has no gradient, or if no kernel writes the gradient directly.
func (c *compiler) canonical(p *graph.Value) device.TensorSpec {
	if c.plainParams {
		return p.Spec()
	}
	for _, gr := range c.g.Gradients {
		if gr.Param == p {
			if s := c.versions[gr.Value][0].spec; s.Shape.Equal(p.Shape) && s.DType == p.DType {
				return s
			}
		}
	}
	return p.Spec()
}
