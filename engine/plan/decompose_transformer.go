package plan

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Decompositions of the ops of transformers. Attention has no decomposition, because every device for transformers has
// an attention kernel.

// one is apply for an op with one output.
func (d *decomposition) one(op device.Op, in ...*graph.Value) *graph.Value {
	return d.apply(op, in...)[0]
}

// as converts x to another type.
func (d *decomposition) as(x *graph.Value, to tensor.DType) *graph.Value {
	if d.err != nil || x.DType == to {
		return x
	}
	return d.one(device.Reorder{To: to}, x)
}

func (d *decomposition) binary(f device.BinaryFunc, a, b *graph.Value) *graph.Value {
	return d.one(device.Binary{Func: f}, a, b)
}

// embedding looks up the rows of each table with a separate op, and adds the rows.
func (d *decomposition) embedding(op device.Embedding) {
	in := d.of.In
	wide := in[1].DType // add in the type of the tables, and round only the sum
	s := d.of.Out[0].Shape
	sum := d.one(device.Embedding{To: wide}, in[0], in[1])
	rows := d.one(device.Slice{Axis: 0, Start: 0, Size: s[1]}, in[2])
	sum = d.binary(device.Add, sum, rows)
	if len(in) > 3 {
		sum = d.binary(device.Add, sum, d.one(device.Embedding{To: wide}, in[3], in[4]))
	}
	d.result(0, device.Reorder{To: op.To}, 0, sum)
}

// layerNorm computes in the type of gamma, on rows (R, C).
func (d *decomposition) layerNorm(op device.LayerNorm) {
	in, out := d.of.In, d.of.Out
	x := in[0]
	if op.Add {
		d.result(3, device.Binary{Func: device.Add}, 0, x, in[3])
		x = out[3]
	}
	wide, rows := in[1].DType, out[1].Shape[0]
	x = d.one(device.Reshape{Shape: tensor.Shape{rows, in[1].Shape[0]}}, d.as(x, wide))
	d.result(1, device.Reduce{Func: device.Mean, Axes: []int{1}}, 0, x)
	centred := d.binary(device.Sub, x, d.column(out[1]))
	variance := d.one(device.Reduce{Func: device.Mean, Axes: []int{1}},
		d.one(device.Unary{Func: device.Square}, centred))
	eps := d.one(device.Fill{DType: wide, Shape: tensor.Shape{1}, Value: op.Eps})
	one := d.one(device.Fill{DType: wide, Shape: tensor.Shape{rows}, Value: 1})
	d.result(2, device.Binary{Func: device.Div}, 0, one,
		d.one(device.Unary{Func: device.Sqrt}, d.binary(device.Add, variance, eps)))
	y := d.binary(device.Mul, d.binary(device.Mul, centred, d.column(out[2])), in[1])
	y = d.one(device.Reshape{Shape: out[0].Shape}, d.binary(device.Add, y, in[2]))
	d.result(0, device.Reorder{To: out[0].DType}, 0, y)
}

// column returns v (R) as (R, 1).
func (d *decomposition) column(v *graph.Value) *graph.Value {
	if d.err != nil {
		return nil
	}
	return d.one(device.Reshape{Shape: tensor.Shape{v.Shape[0], 1}}, v)
}

func (d *decomposition) layerNormDiff(op device.LayerNormDiff) {
	in, out := d.of.In, d.of.Out
	gamma, wide := in[4], in[4].DType
	flat := device.Reshape{Shape: tensor.Shape{in[2].Shape[0], gamma.Shape[0]}}
	mean := device.Reduce{Func: device.Mean, Axes: []int{1}}
	diff, inverse := d.one(flat, d.as(in[0], wide)), d.column(in[3])
	hat := d.binary(device.Mul, d.binary(device.Sub, d.one(flat, d.as(in[1], wide)), d.column(in[2])), inverse)
	d.result(1, device.Reduce{Func: device.Sum, Axes: []int{0}}, 0, d.binary(device.Mul, diff, hat))
	d.result(2, device.Reduce{Func: device.Sum, Axes: []int{0}}, 0, diff)
	g := d.binary(device.Mul, diff, gamma)
	part := d.binary(device.Mul, hat, d.column(d.one(mean, d.binary(device.Mul, g, hat))))
	y := d.binary(device.Sub, d.binary(device.Sub, g, d.column(d.one(mean, g))), part)
	y = d.one(device.Reshape{Shape: out[0].Shape}, d.binary(device.Mul, y, inverse))
	if op.Plus {
		y = d.binary(device.Add, y, d.as(in[5], wide))
	}
	d.result(0, device.Reorder{To: out[0].DType}, 0, y)
}

// biased returns src + bias in src's type.
func (d *decomposition) biased(src, bias *graph.Value) *graph.Value {
	return d.binary(device.Add, src, d.as(bias, src.DType))
}

func (d *decomposition) biasGELUDiff(op device.BiasGELUDiff) {
	in, out := d.of.In, d.of.Out
	d.result(0, device.UnaryDiff{Func: op.Func}, 0, in[0], d.biased(in[1], in[2]))
	diff := d.as(out[0], in[2].DType)
	axes := make([]int, len(in[1].Shape)-1)
	for i := range axes {
		axes[i] = i
	}
	d.result(1, device.Reduce{Func: device.Sum, Axes: axes}, 0, diff)
}

// linearCrossEntropy stores all logits, which the fused op avoids.
func (d *decomposition) linearCrossEntropy() {
	in, out := d.of.In, d.of.Out
	d.apply(device.SoftmaxCrossEntropy{}, d.logits(in[3:]), in[2])
	if d.err == nil {
		copy(d.nodes[len(d.nodes)-1].Out, out)
	}
}

// logits returns the logits in the type of the loss. bias holds the bias, or nothing.
func (d *decomposition) logits(bias []*graph.Value) *graph.Value {
	in := d.of.In
	wide := tensor.F32
	if in[0].DType == tensor.F64 {
		wide = tensor.F64
	}
	return d.one(device.Linear{To: wide}, append([]*graph.Value{in[0], in[1]}, bias...)...)
}

func (d *decomposition) linearCrossEntropyDiff() {
	in, out := d.of.In, d.of.Out
	diff := d.one(device.SoftmaxCrossEntropyDiff{}, d.logits(in[5:]), in[2], in[3], in[4])
	diff = d.as(diff, in[0].DType)
	d.apply(device.LinearDiffWeights{Bias: len(in) == 6}, in[0], diff)
	if d.err == nil {
		copy(d.nodes[len(d.nodes)-1].Out, out[1:])
	}
	d.result(0, device.LinearDiffSrc{}, 0, diff, in[1])
}
