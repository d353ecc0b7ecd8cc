package graph

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Ops for layers. name is the node's name in errors and traces. For the types of package device that layers need, this
// file defines aliases, so that package nn does not import package device.

// Window is the stride, padding and dilation of convolutions and poolings.
type Window = device.Window

// Element-wise functions for layers.
const (
	ReLU = device.ReLU
	GELU = device.GELU
	Add  = device.Add
	Mul  = device.Mul
)

// Conv2D convolves x (N, C, H, W) with w (O, C/groups, KH, KW); bias (O) may be nil.
func (g *Graph) Conv2D(name string, x, w, bias *Value, win Window, groups int) *Value {
	return g.weighted(name, device.Conv2D{Window: win, Groups: groups}, x, w, bias)
}

// Linear computes x (N, I) · wᵀ (O, I) + bias (O); bias may be nil. The parameter to is the type of the result;
// tensor.Invalid: the type of x.
func (g *Graph) Linear(name string, x, w, bias *Value, to tensor.DType) *Value {
	return g.weighted(name, device.Linear{To: to}, x, w, bias)
}

func (g *Graph) weighted(name string, op device.Op, x, w, bias *Value) *Value {
	in := []*Value{x, g.as(w, x.DType)}
	if bias != nil {
		in = append(in, bias)
	}
	return g.one(name, op, in...)
}

// as returns parameter w converted to type dt. All readers use the same converted copy.
func (g *Graph) as(w *Value, dt tensor.DType) *Value {
	if w.DType == dt {
		return w
	}
	if g.cast[w] == nil {
		g.cast[w] = g.Cast(w.Name+" as "+dt.String(), w, dt)
	}
	return g.cast[w]
}

// BatchNorm holds the values of one batch normalisation layer, each of shape (C).
type BatchNorm struct {
	Gamma, Beta             *Value
	RunningMean, RunningVar *Value
	Group                   int // number of samples in a statistics group; 0: the whole batch
	Eps, Momentum           float64
	ReLU                    bool
	Residual                *Value // added before ReLU; may be nil
	UseRunning              bool   // evaluation: normalise with the running statistics without updating them
	// If Sync is set, the statistics cover the samples of all ranks, and the ranks exchange them in both passes. Group
	// must then be 0. If Sync is nil, the statistics cover only this rank's samples.
	Sync *Ranks
}

// BatchNorm normalises x (N, C, H, W), adds the residual, applies ReLU, and updates the running statistics.
func (g *Graph) BatchNorm(name string, x *Value, bn BatchNorm) *Value {
	mean, variance := bn.RunningMean, bn.RunningVar
	group := 0
	if !bn.UseRunning {
		group = bn.Group
		st := g.Apply(name+" stats", device.BatchNormStats{Group: group}, x)
		mean, variance = st[0], st[1]
		counts := device.GroupCounts(x.Shape, group)
		if bn.Sync != nil {
			if group != 0 {
				fail(name, "got groups of %d samples, want no groups, because ranks exchange statistics", group)
			}
			mean, variance = bn.Sync.merged(g, name, mean, variance)
			g.synced[mean] = bn.Sync
			counts = []int64{int64(bn.Sync.Total) * int64(x.Shape[2]*x.Shape[3])}
		}
		g.Apply(name+" running", device.BatchNormRunning{Momentum: bn.Momentum, Counts: counts}, bn.RunningMean,
			bn.RunningVar, mean, variance)
	}
	in := []*Value{x, mean, variance, bn.Gamma, bn.Beta}
	if bn.Residual != nil {
		in = append(in, bn.Residual)
	}
	op := device.BatchNormApply{Group: group, Eps: bn.Eps, ReLU: bn.ReLU, Add: bn.Residual != nil}
	return g.Apply(name, op, in...)[0]
}

// MaxPool2D computes the maximum of each window. If train is set, it also keeps the positions of the maxima, which the
// gradient needs.
func (g *Graph) MaxPool2D(name string, x *Value, kernel [2]int, win Window, train bool) *Value {
	return g.Apply(name, device.MaxPool2D{Window: win, Kernel: kernel, Train: train}, x)[0]
}

// AvgPool2D computes the mean of each window. If countPadding is set, the divisor is the size of the whole window, also
// at the edges.
func (g *Graph) AvgPool2D(name string, x *Value, kernel [2]int, win Window, countPadding bool) *Value {
	return g.one(name, device.AvgPool2D{Window: win, Kernel: kernel, CountPadding: countPadding}, x)
}

// GlobalAvgPool averages (N, C, H, W) to (N, C).
func (g *Graph) GlobalAvgPool(name string, x *Value) *Value {
	return g.one(name, device.GlobalAvgPool{}, x)
}

// Unary applies f to each element.
func (g *Graph) Unary(name string, f device.UnaryFunc, x *Value) *Value {
	return g.one(name, device.Unary{Func: f}, x)
}

// Binary applies f to the elements of a and b. b is broadcast to the shape of a.
func (g *Graph) Binary(name string, f device.BinaryFunc, a, b *Value) *Value {
	return g.one(name, device.Binary{Func: f}, a, b)
}

// Full returns a value whose elements all equal value.
func (g *Graph) Full(name string, dt tensor.DType, value float64, shape ...int) *Value {
	return g.one(name, device.Fill{DType: dt, Shape: shape, Value: value})
}

// Dropout zeroes elements of x (N, …) with probability p. ids (N) i64 are the sample ids. key (2) u32 is the Philox key
// of the step. stream must differ between the layers of a model.
func (g *Graph) Dropout(name string, x, ids, key *Value, p float64, stream uint32) *Value {
	return g.one(name, device.Dropout{P: p, Stream: stream}, x, ids, key)
}

// Cast converts the element type.
func (g *Graph) Cast(name string, x *Value, to tensor.DType) *Value {
	return g.one(name, device.Reorder{To: to}, x)
}

// Reshape returns x in another shape with the same number of elements.
func (g *Graph) Reshape(name string, x *Value, shape ...int) *Value {
	return g.one(name, device.Reshape{Shape: shape}, x)
}

// Transpose permutes dimensions.
func (g *Graph) Transpose(name string, x *Value, perm ...int) *Value {
	return g.one(name, device.Transpose{Perm: perm}, x)
}

// Concat concatenates any number of values along a dimension. More than device.MaxOperands values are concatenated in
// groups first, because no kernel reads more.
func (g *Graph) Concat(name string, axis int, xs ...*Value) *Value {
	op := device.Concat{Axis: axis}
	if _, err := NewNode(name, op, xs...); err != nil { // a group's error would describe only the inputs of the group
		panic(&BuildError{Node: name, Err: err})
	}
	for len(xs) > device.MaxOperands {
		var groups []*Value
		for group := range slices.Chunk(xs, device.MaxOperands) {
			if len(group) > 1 {
				group = []*Value{g.one(name, op, group...)}
			}
			groups = append(groups, group[0])
		}
		xs = groups
	}
	return g.one(name, op, xs...)
}

// Slice returns the range [start, start+size) of a dimension.
func (g *Graph) Slice(name string, x *Value, axis, start, size int) *Value {
	return g.one(name, device.Slice{Axis: axis, Start: start, Size: size}, x)
}

// Reduce reduces the given dimensions with f.
func (g *Graph) Reduce(name string, f device.ReduceFunc, x *Value, axes ...int) *Value {
	return g.one(name, device.Reduce{Func: f, Axes: axes}, x)
}

// ImageNormalize converts bytes (N, H, W, C) to network input (N, C, H, W): (x/255 - mean)/std for each channel.
func (g *Graph) ImageNormalize(name string, x *Value, mean, std []float32, to tensor.DType) *Value {
	return g.one(name, device.ImageNormalize{Mean: mean, Std: std, To: to}, x)
}

// SoftmaxCrossEntropy returns the loss (N) of each sample and the top-k position (N) of its label among the classes.
func (g *Graph) SoftmaxCrossEntropy(name string, logits, labels *Value, smoothing float64) (loss, position *Value) {
	out := g.Apply(name, device.SoftmaxCrossEntropy{LabelSmoothing: smoothing}, logits, labels)
	return out[0], out[1]
}

// MixedSoftmaxCrossEntropy is SoftmaxCrossEntropy for samples with two labels. A sample's label in labels has the
// weight lambda (N), and its label in second has the weight 1-lambda.
func (g *Graph) MixedSoftmaxCrossEntropy(name string, logits, labels, second, lambda *Value, smoothing float64) (loss,
	position *Value) {
	out := g.Apply(name, device.SoftmaxCrossEntropy{LabelSmoothing: smoothing, Mixed: true}, logits, labels, second,
		lambda)
	return out[0], out[1]
}
