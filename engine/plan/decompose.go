package plan

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// mustDecompose reports whether n reads saved values that do not exist, because the op that saves them was decomposed.
func mustDecompose(n *graph.Node, versions map[*graph.Value][]*version) bool {
	op, ok := n.Op.(device.BatchNormDiffReduce)
	return ok && op.ReLU && op.Add && len(versions[n.In[len(n.In)-1]]) == 0
}

// decompose returns simpler nodes that replace node n, for devices that lack the fused op of n. The last nodes compute
// the outputs of n.
func decompose(n *graph.Node) ([]*graph.Node, error) {
	d := &decomposition{of: n}
	switch op := n.Op.(type) {
	case device.BatchNormApply:
		if !op.ReLU && !op.Add {
			return nil, fmt.Errorf("%s has no decomposition", n.Op.Kind())
		}
		d.batchNormApply(op)
	case device.BatchNormDiffReduce:
		if !op.ReLU && !op.Add && !op.Two {
			return nil, fmt.Errorf("%s has no decomposition", n.Op.Kind())
		}
		d.batchNormDiffReduce(op)
	case device.BatchNormDiffApply:
		if !op.ReLU {
			return nil, fmt.Errorf("%s has no decomposition", n.Op.Kind())
		}
		dz := d.unmask(n.In[5], d.normalised(op.Group, op.Eps))
		op.ReLU = false
		in := append([]*graph.Value{}, n.In...)
		in[5] = dz
		d.result(0, op, 0, in...)
	case device.GlobalAvgPool:
		d.result(0, device.Reduce{Func: device.Mean, Axes: []int{2, 3}}, 0, n.In[0])
	case device.GlobalAvgPoolDiff:
		s := n.Out[0].Shape
		weight := d.apply(device.Fill{DType: n.In[0].DType, Shape: []int{1}, Value: 1 / float64(op.Height*op.Width)})[0]
		each := d.apply(device.Binary{Func: device.Mul}, n.In[0], weight)[0]
		d.result(0, device.Broadcast{Shape: s, Axes: []int{2, 3}}, 0, each)
	case device.Embedding:
		if len(n.In) == 2 {
			return nil, fmt.Errorf("%s of one table has no decomposition", n.Op.Kind())
		}
		d.embedding(op)
	case device.LayerNorm:
		d.layerNorm(op)
	case device.LayerNormDiff:
		d.layerNormDiff(op)
	case device.BiasGELU:
		d.result(0, device.Unary{Func: op.Func}, 0, d.biased(n.In[0], n.In[1]))
	case device.BiasGELUDiff:
		d.biasGELUDiff(op)
	case device.LinearCrossEntropy:
		d.linearCrossEntropy()
	case device.LinearCrossEntropyDiff:
		d.linearCrossEntropyDiff()
	case graph.Decomposable:
		d.own(op)
	default:
		return nil, fmt.Errorf("%s has no decomposition: its type %T does not implement graph.Decomposable",
			n.Op.Kind(), n.Op)
	}
	return d.nodes, d.err
}

// decomposition collects the nodes that replace one node.
type decomposition struct {
	of    *graph.Node
	nodes []*graph.Node
	err   error
}

// own decomposes an op from outside the module with the method Decompose of the op.
func (d *decomposition) own(op graph.Decomposable) {
	var outs []*graph.Value
	if d.nodes, outs, d.err = graph.Decompose(op, d.of); d.err != nil {
		return
	}
	for _, n := range d.nodes {
		n.Name, n.Phase = d.of.Name+" "+n.Name, d.of.Phase
	}
	for j, out := range outs {
		d.rename(out, d.of.Out[j])
	}
}

func (d *decomposition) apply(op device.Op, in ...*graph.Value) []*graph.Value {
	if d.err != nil {
		return make([]*graph.Value, 4)
	}
	n, err := graph.NewNode(d.of.Name+" "+op.Kind(), op, in...)
	if err != nil {
		d.err = err
		return make([]*graph.Value, 4)
	}
	n.Phase = d.of.Phase
	d.nodes = append(d.nodes, n)
	return n.Out
}

// result appends a node for op. Output number from of this node becomes output number to of the fused node.
func (d *decomposition) result(to int, op device.Op, from int, in ...*graph.Value) {
	d.apply(op, in...)
	if d.err == nil {
		d.nodes[len(d.nodes)-1].Out[from] = d.of.Out[to]
	}
}

func (d *decomposition) batchNormApply(op device.BatchNormApply) {
	in, plain := d.of.In, device.BatchNormApply{Group: op.Group, Eps: op.Eps}
	switch {
	case op.Add && op.ReLU:
		y := d.apply(plain, in[:5]...)[0]
		sum := d.apply(device.Binary{Func: device.Add}, y, in[5])[0]
		d.result(0, device.Unary{Func: device.ReLU}, 0, sum)
	case op.Add:
		y := d.apply(plain, in[:5]...)[0]
		d.result(0, device.Binary{Func: device.Add}, 0, y, in[5])
	default:
		y := d.apply(plain, in[:5]...)[0]
		d.result(0, device.Unary{Func: device.ReLU}, 0, y)
	}
}

func (d *decomposition) batchNormDiffReduce(op device.BatchNormDiffReduce) {
	in := d.of.In
	dz := in[5]
	if op.Two {
		dz = d.apply(device.Binary{Func: device.Add}, in[5], in[6])[0]
	}
	if op.ReLU {
		if op.Add { // ReLU's mask is the sign of the output of the forward pass
			dz = d.unmask(dz, in[len(in)-1].Node.Out[0])
		} else {
			dz = d.unmask(dz, d.normalised(op.Group, op.Eps))
		}
	}
	plain := device.BatchNormDiffReduce{Group: op.Group, Eps: op.Eps}
	d.apply(plain, in[0], in[1], in[2], in[3], in[4], dz)
	if d.err != nil {
		return
	}
	last := d.nodes[len(d.nodes)-1]
	last.Out[0], last.Out[1] = d.of.Out[0], d.of.Out[1]
	if len(d.of.Out) == 3 {
		// dz, the masked sum, is also an output of the fused node
		d.rename(dz, d.of.Out[2])
	}
}

// normalised recomputes the value before ReLU from x and the statistics.
func (d *decomposition) normalised(group int, eps float64) *graph.Value {
	return d.apply(device.BatchNormApply{Group: group, Eps: eps}, d.of.In[:5]...)[0]
}

// unmask returns the gradient of the input of a ReLU. diff is the gradient of the ReLU's output, and y is the ReLU's
// input or output.
func (d *decomposition) unmask(diff, y *graph.Value) *graph.Value {
	return d.apply(device.UnaryDiff{Func: device.ReLU}, diff, y)[0]
}

// rename replaces value from by value to in all nodes. If no node of the decomposition computes from, rename appends a
// node that copies from to to.
func (d *decomposition) rename(from, to *graph.Value) {
	made := false
	for _, n := range d.nodes {
		for i, v := range n.Out {
			if v == from {
				n.Out[i], made = to, true
			}
		}
		for i, v := range n.In {
			if v == from && made {
				n.In[i] = to
			}
		}
	}
	if !made {
		d.apply(device.Reorder{To: from.DType}, from)
		if d.err == nil {
			d.nodes[len(d.nodes)-1].Out[0] = to
		}
	}
}
