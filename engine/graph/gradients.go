package graph

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rules maps the kind of an op to its gradient rule. An op without a rule cannot be between a parameter and the loss.
var rules = map[string]rule{}

// differentiable sets the rule of an op. Each file of rules calls it in init, not in the declaration of the map,
// because the functions of rules read the map.
func differentiable(op device.Op, r rule) { rules[op.Kind()] = r }

func init() {
	differentiable(device.Conv2D{}, convGradient)
	differentiable(device.Linear{}, linearGradient)
	differentiable(device.BatchNormApply{}, batchNormGradient)
	differentiable(device.MaxPool2D{}, maxPoolGradient)
	differentiable(device.AvgPool2D{}, avgPoolGradient)
	differentiable(device.GlobalAvgPool{}, globalAvgPoolGradient)
	differentiable(device.Unary{}, unaryGradient)
	differentiable(device.Binary{}, binaryGradient)
	differentiable(device.Scale{}, scaleGradient)
	differentiable(device.Dropout{}, dropoutGradient)
	differentiable(device.Reorder{}, castGradient)
	differentiable(device.Reshape{}, reshapeGradient)
	differentiable(device.Transpose{}, transposeGradient)
	differentiable(device.Concat{}, concatGradient)
	differentiable(device.Slice{}, sliceGradient)
	differentiable(device.Pad{}, padGradient)
	differentiable(device.Reduce{}, reduceGradient)
	differentiable(device.Broadcast{}, broadcastGradient)
	differentiable(device.SoftmaxCrossEntropy{}, lossGradient)
}

// A rule appends the gradient of weights before the gradient of the source. The all-reduce of the weights' gradient can
// then start during the backward pass.

func convGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	op := n.Op.(device.Conv2D)
	x, w, diff := n.In[0], n.In[1], g.sum(n.Name, n.Out[0], d[0])
	out := make([]*Value, len(n.In))
	bias := len(n.In) == 3 && need(2)
	if need(1) || bias {
		p := g.Apply(n.Name+" diff weights",
			device.Conv2DDiffWeights{Conv2D: op, Kernel: [2]int{w.Shape[2], w.Shape[3]}, Bias: bias}, x, diff)
		out[1] = p[0]
		if bias {
			out[2] = p[1]
		}
	}
	if need(0) {
		out[0] = g.one(n.Name+" diff src", device.Conv2DDiffSrc{Conv2D: op, Height: x.Shape[2], Width: x.Shape[3]},
			diff, w)
	}
	return out
}

func linearGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	x, w, diff := n.In[0], n.In[1], g.sum(n.Name, n.Out[0], d[0])
	if diff.DType != x.DType {
		// the result's type differs from the source's: convert the gradient to the type of the products
		diff = g.Cast(n.Name+" diff cast", diff, x.DType)
	}
	out := make([]*Value, len(n.In))
	bias := len(n.In) == 3 && need(2)
	if need(1) || bias {
		p := g.Apply(n.Name+" diff weights", device.LinearDiffWeights{Bias: bias}, x, diff)
		out[1] = p[0]
		if bias {
			out[2] = p[1]
		}
	}
	if need(0) {
		out[0] = g.one(n.Name+" diff src", device.LinearDiffSrc{}, diff, w)
	}
	return out
}

// batchNormGradient includes the gradients through the statistics, so neither BatchNormStats nor the nodes that merge
// statistics of several ranks need a rule. Gradients of gamma and beta are sums over this rank's samples, as for every
// parameter. The gradient of x needs the sums over all ranks.
func batchNormGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	op := n.Op.(device.BatchNormApply)
	x, mean, variance, gamma, beta := n.In[0], n.In[1], n.In[2], n.In[3], n.In[4]
	ranks, still := g.synced[mean], mean.Role == State && mean.Frozen
	if still { // the statistics do not depend on x
		mean, variance = g.Reshape(n.Name+" mean", mean, 1, mean.Shape[0]),
			g.Reshape(n.Name+" variance", variance, 1, variance.Shape[0])
	} else if ranks == nil && (mean.Node == nil || mean.Node.Op.Kind() != (device.BatchNormStats{}).Kind()) {
		fail(n.Name, "differentiate: normalised with running statistics; build the graph for training")
	}
	diffs := d[0]
	if len(diffs) > 2 {
		diffs = []*Value{diffs[0], g.sum(n.Name, n.Out[0], diffs[1:])}
	}
	reduce := device.BatchNormDiffReduce{Group: op.Group, Eps: op.Eps, ReLU: op.ReLU, Add: op.Add, Two: len(diffs) == 2}
	in := append([]*Value{x, mean, variance, gamma, beta}, diffs...)
	if op.ReLU && op.Add {
		in = append(in, n.Out[1])
	}
	out := make([]*Value, len(n.In))
	var r []*Value
	if need(3) || need(4) || reduce.Add || reduce.Two || !still {
		r = g.Apply(n.Name+" diff reduce", reduce, in...)
		out[3] = g.perChannel(n.Name+" diff gamma", r[0])
		out[4] = g.perChannel(n.Name+" diff beta", r[1])
	}
	dz, masked := diffs[0], !op.ReLU
	if reduce.Add || reduce.Two {
		dz, masked = r[2], true
		dz.Follows = x
	}
	if op.Add {
		out[5] = dz
	}
	if need(0) {
		apply := device.BatchNormDiffApply{Group: op.Group, Eps: op.Eps, ReLU: !masked}
		var sums []*Value
		if still { // no gradient flows through constant statistics
			zero := g.one(n.Name+" diff sums", device.Fill{DType: mean.DType, Shape: mean.Shape.Clone()})
			sums = []*Value{zero, zero}
		} else {
			sums = r[:2]
		}
		if ranks != nil {
			apply.Count = int64(ranks.Total) * int64(x.Shape[2]*x.Shape[3])
			sums = g.Apply(n.Name+" diff sums", AllReduce{}, sums...)
		}
		out[0] = g.one(n.Name+" diff apply", apply, x, mean, variance, gamma, beta, dz, sums[0], sums[1])
	}
	return out
}

// perChannel adds up partial sums (G, C) over the groups and returns (C).
func (g *Graph) perChannel(name string, v *Value) *Value {
	if v.Shape[0] == 1 {
		return g.Reshape(name, v, v.Shape[1])
	}
	return g.Reduce(name, device.Sum, v, 0)
}

func maxPoolGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op := n.Op.(device.MaxPool2D)
	if !op.Train {
		fail(n.Name, "differentiate: pooled without Train; build the graph for training")
	}
	s := n.In[0].Shape
	return []*Value{g.one(n.Name+" diff", device.MaxPool2DDiff{MaxPool2D: op, Height: s[2], Width: s[3]},
		g.sum(n.Name, n.Out[0], d[0]), n.Out[1])}
}

func avgPoolGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	s := n.In[0].Shape
	op := device.AvgPool2DDiff{AvgPool2D: n.Op.(device.AvgPool2D), Height: s[2], Width: s[3]}
	return []*Value{g.one(n.Name+" diff", op, g.sum(n.Name, n.Out[0], d[0]))}
}

func globalAvgPoolGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	s := n.In[0].Shape
	return []*Value{
		g.one(n.Name+" diff", device.GlobalAvgPoolDiff{Height: s[2], Width: s[3]}, g.sum(n.Name, n.Out[0], d[0]))}
}

func unaryGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	f := n.Op.(device.Unary).Func
	src := n.In[0]
	if f == device.ReLU {
		src = n.Out[0] // the output is stored anyway, so the source need not be stored
	}
	return []*Value{g.one(n.Name+" diff", device.UnaryDiff{Func: f}, g.sum(n.Name, n.Out[0], d[0]), src)}
}

func binaryGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	a, b, diff := n.In[0], n.In[1], g.sum(n.Name, n.Out[0], d[0])
	out := make([]*Value, 2)
	switch f := n.Op.(device.Binary).Func; f {
	case device.Add:
		out[0], out[1] = diff, diff
	case device.Sub:
		out[0] = diff
		if need(1) {
			out[1] = g.Unary(n.Name+" diff b", device.Neg, diff)
		}
	case device.Mul:
		if need(0) {
			out[0] = g.Binary(n.Name+" diff a", device.Mul, diff, b)
		}
		if need(1) {
			out[1] = g.Binary(n.Name+" diff b", device.Mul, diff, a)
		}
	case device.Div:
		if need(0) {
			out[0] = g.Binary(n.Name+" diff a", device.Div, diff, b)
		}
		if need(1) { // -diff·(a/b)/b
			q := g.Binary(n.Name+" quotient", device.Div, g.Binary(n.Name+" diff·dst", device.Mul, diff, n.Out[0]), b)
			out[1] = g.Unary(n.Name+" diff b", device.Neg, q)
		}
	default:
		fail(n.Name, "differentiate: binary %v has no gradient", f)
	}
	if out[1] != nil {
		out[1] = g.unbroadcast(n.Name+" diff b", out[1], b.Shape)
	}
	return out
}

// unbroadcast returns the sums of v over the dimensions in which an operand of the given shape was broadcast.
func (g *Graph) unbroadcast(name string, v *Value, shape tensor.Shape) *Value {
	var axes []int
	lead := len(v.Shape) - len(shape)
	for i, d := range v.Shape {
		if i < lead || (shape[i-lead] == 1 && d != 1) {
			axes = append(axes, i)
		}
	}
	if len(axes) == 0 {
		return v
	}
	v = g.Reduce(name+" sum", device.Sum, v, axes...)
	if !v.Shape.Equal(shape) {
		v = g.Reshape(name+" shape", v, shape...)
	}
	return v
}

func scaleGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	if need(1) {
		fail(n.Name, "differentiate: the factor of scale has no gradient, but depends on a parameter")
	}
	return []*Value{g.one(n.Name+" diff", device.Scale{}, g.sum(n.Name, n.Out[0], d[0]), n.In[1]), nil}
}

func dropoutGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	return []*Value{g.one(n.Name+" diff", n.Op, g.sum(n.Name, n.Out[0], d[0]), n.In[1], n.In[2]), nil, nil}
}

func castGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	diff := g.sum(n.Name, n.Out[0], d[0])
	if diff.DType == n.In[0].DType { // weight gradients have the parameter's type
		return []*Value{diff}
	}
	return []*Value{g.Cast(n.Name+" diff", diff, n.In[0].DType)}
}

func reshapeGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	return []*Value{g.Reshape(n.Name+" diff", g.sum(n.Name, n.Out[0], d[0]), n.In[0].Shape...)}
}

func transposeGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	perm := n.Op.(device.Transpose).Perm
	inverse := make([]int, len(perm))
	for i, p := range perm {
		inverse[p] = i
	}
	return []*Value{g.Transpose(n.Name+" diff", g.sum(n.Name, n.Out[0], d[0]), inverse...)}
}

func concatGradient(g *Graph, n *Node, d [][]*Value, need func(int) bool) []*Value {
	axis, diff, start := n.Op.(device.Concat).Axis, g.sum(n.Name, n.Out[0], d[0]), 0
	out := make([]*Value, len(n.In))
	for i, in := range n.In {
		if need(i) {
			out[i] = g.Slice(n.Name+" diff", diff, axis, start, in.Shape[axis])
		}
		start += in.Shape[axis]
	}
	return out
}

func sliceGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op := n.Op.(device.Slice)
	return []*Value{g.one(n.Name+" diff", device.Pad{Axis: op.Axis, Start: op.Start, Size: n.In[0].Shape[op.Axis]},
		g.sum(n.Name, n.Out[0], d[0]))}
}

func padGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op := n.Op.(device.Pad)
	return []*Value{g.Slice(n.Name+" diff", g.sum(n.Name, n.Out[0], d[0]), op.Axis, op.Start, n.In[0].Shape[op.Axis])}
}

func reduceGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op, src := n.Op.(device.Reduce), n.In[0]
	if op.Func == device.Maximum {
		fail(n.Name, "differentiate: a maximum over dimensions has no gradient")
	}
	diff := g.one(n.Name+" diff", device.Broadcast{Shape: slices.Clone(src.Shape), Axes: op.Axes},
		g.sum(n.Name, n.Out[0], d[0]))
	if op.Func == device.Mean {
		count := float64(src.Shape.Elements() / n.Out[0].Shape.Elements())
		c := g.one(n.Name+" 1/count", device.Fill{DType: src.DType, Shape: tensor.Shape{1}, Value: 1 / count})
		diff = g.Binary(n.Name+" diff mean", device.Mul, diff, c)
	}
	return []*Value{diff}
}

func broadcastGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	return []*Value{
		g.Reduce(n.Name+" diff", device.Sum, g.sum(n.Name, n.Out[0], d[0]), n.Op.(device.Broadcast).Axes...)}
}

// lossScale returns the only contribution to the gradient of a loss: the scale passed to Differentiate, which
// multiplies every sample's loss.
func (g *Graph) lossScale(n *Node, d [][]*Value) *Value {
	if len(d[0]) != 1 || !d[0][0].Shape.Equal(tensor.Shape{1}) {
		fail(n.Name, "differentiate: got %d contributions, want the factor of shape (1) alone", len(d[0]))
	}
	return d[0][0]
}

// lossGradient multiplies the rows of the gradient by the weights of the samples (Term.Weights), if there are any.
func lossGradient(g *Graph, n *Node, d [][]*Value, _ func(int) bool) []*Value {
	op := n.Op.(device.SoftmaxCrossEntropy)
	loss := n.Out[0]
	if v := g.recomputed[loss]; v != nil {
		loss = v
	}
	weights := g.weights[loss]
	// n.In[2:] holds the second labels and the lambdas of mixed samples
	in := append([]*Value{n.In[0], n.In[1], n.Out[2], g.lossScale(n, d)}, n.In[2:]...)
	grads := make([]*Value, len(n.In))
	grads[0] = g.one(n.Name+" diff", device.SoftmaxCrossEntropyDiff{LabelSmoothing: op.LabelSmoothing, Mixed: op.Mixed},
		in...)
	if weights != nil {
		rows := g.Reshape(n.Name+" weights", weights, weights.Shape[0], 1)
		if rows.DType != grads[0].DType {
			rows = g.Cast(n.Name+" weights", rows, grads[0].DType)
		}
		grads[0] = g.Binary(n.Name+" diff weighted", device.Mul, grads[0], rows)
	}
	return grads
}
