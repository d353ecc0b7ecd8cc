package nn

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// BatchNorm statistics: what torchvision's networks use.
const (
	batchNormEps      = 1e-5
	batchNormMomentum = 0.1
)

// Net is what the layers of one graph share.
type Net struct {
	Graph    *graph.Graph
	Training bool
	Compute  tensor.DType // of activations: f32, bf16, f64
	// GhostGroup is the samples of a BatchNorm statistics group; 0 = the whole batch.
	GhostGroup int
	// Sync takes the batch statistics of training over the samples of all ranks, GhostGroup being 0; nil = over this rank's own.
	Sync *graph.Ranks

	// IDs (N) i64 and Key (2) u32 tell dropout which samples and which step it sees; needed only with dropout.
	IDs, Key *graph.Value

	// Head is the layer whose outputs are the classes; Logits sets it.
	Head string

	dropouts uint32
}

// channels is the extent of dimension 1 of x (N, C, …), by which parameters are declared.
func channels(name string, x *graph.Value) int {
	if len(x.Shape) < 2 {
		panic(&graph.BuildError{Node: name, Err: fmt.Errorf("x: got %d dimensions %v, want at least 2", len(x.Shape), x.Shape)})
	}
	return x.Shape[1]
}

// Conv describes a square convolution. The zero value of Stride, Dilation and Groups means 1.
type Conv struct {
	Out, Kernel, Stride, Padding, Dilation, Groups int
	Bias                                           bool
}

// Conv2D convolves x (N, C, H, W). Weights start as Kaiming normal, fan out, for ReLU; biases as 0.
func (n *Net) Conv2D(name string, x *graph.Value, c Conv) *graph.Value {
	stride, dilation, groups := max(c.Stride, 1), max(c.Dilation, 1), max(c.Groups, 1)
	in := channels(name, x)
	std := math.Sqrt(2 / float64(c.Out*c.Kernel*c.Kernel))
	w := n.Graph.Param(name+".weight", graph.Normal(std), c.Out, in/groups, c.Kernel, c.Kernel)
	var bias *graph.Value
	if c.Bias {
		bias = n.Graph.Param(name+".bias", graph.Const(0), c.Out)
	}
	win := graph.Window{Stride: [2]int{stride, stride}, Padding: [2]int{c.Padding, c.Padding}, Dilation: [2]int{dilation, dilation}}
	return n.Graph.Conv2D(name, x, w, bias, win, groups)
}

// Norm describes a BatchNorm layer.
type Norm struct {
	ReLU     bool
	Residual *graph.Value // added before ReLU; may be nil
	ZeroInit bool         // gamma starts as 0: the residual branch starts silent
}

// BatchNorm normalises x (N, C, H, W) over samples and pixels. Where weight and bias are both frozen it takes the running statistics, in
// training too, and leaves them as they are.
func (n *Net) BatchNorm(name string, x *graph.Value, o Norm) *graph.Value {
	c, one := channels(name, x), 1.0
	if o.ZeroInit {
		one = 0
	}
	gamma, beta := n.Graph.Param(name+".weight", graph.Const(one), c), n.Graph.Param(name+".bias", graph.Const(0), c)
	frozen, state := gamma.Frozen && beta.Frozen, n.Graph.State
	if frozen {
		state = n.Graph.FrozenState
	}
	return n.Graph.BatchNorm(name, x, graph.BatchNorm{
		Gamma:       gamma,
		Beta:        beta,
		RunningMean: state(name+".running_mean", graph.Const(0), c),
		RunningVar:  state(name+".running_var", graph.Const(1), c),
		Group:       n.GhostGroup,
		Eps:         batchNormEps,
		Momentum:    batchNormMomentum,
		ReLU:        o.ReLU,
		Residual:    o.Residual,
		UseRunning:  !n.Training || frozen,
		Sync:        n.Sync,
	})
}

// Linear maps x (N, I) to (N, out), of type to (the compute type if tensor.Invalid). Weights and bias start uniform in ±1/sqrt(I).
func (n *Net) Linear(name string, x *graph.Value, out int, to tensor.DType) *graph.Value {
	in := channels(name, x)
	bound := 1 / math.Sqrt(float64(in))
	w := n.Graph.Param(name+".weight", graph.Uniform(bound), out, in)
	b := n.Graph.Param(name+".bias", graph.Uniform(bound), out)
	return n.Graph.Linear(name, x, w, b, to)
}

// NextLayer says that what follows is the next layer of the model: see graph.Graph.NextLayer.
func (n *Net) NextLayer() { n.Graph.NextLayer() }

// Logits is the last layer of a classifier: Linear whose result is f32 (f64 in f64 nets), so that the loss sees full precision.
func (n *Net) Logits(name string, x *graph.Value, classes int) *graph.Value {
	to := tensor.F32
	if n.Compute == tensor.F64 {
		to = tensor.F64
	}
	n.Head = name
	return n.Linear(name, x, classes, to)
}

// MaxPool2D takes the largest value of each square window.
func (n *Net) MaxPool2D(name string, x *graph.Value, kernel, stride, padding int) *graph.Value {
	win := graph.Window{Stride: [2]int{stride, stride}, Padding: [2]int{padding, padding}, Dilation: [2]int{1, 1}}
	return n.Graph.MaxPool2D(name, x, [2]int{kernel, kernel}, win, n.Training)
}

// GlobalAvgPool makes (N, C) of (N, C, H, W).
func (n *Net) GlobalAvgPool(name string, x *graph.Value) *graph.Value {
	return n.Graph.GlobalAvgPool(name, x)
}

// StochasticDepth is torchvision's in mode "row": while training it makes branch x (N, C, H, W) of a residual block zero for samples, with
// probability p, and 1/(1-p) times as large for the others. Which ones depends on the sample and the epoch, as for Dropout.
func (n *Net) StochasticDepth(name string, x *graph.Value, p float64) *graph.Value {
	if !n.Training || p == 0 {
		return x
	}
	rows := n.Graph.Full(name+" ones", x.DType, 1, x.Shape[0], 1, 1, 1)
	return n.Graph.Binary(name, graph.Mul, x, n.Dropout(name+" rows", rows, p))
}

// Dropout zeroes elements with probability p while training.
func (n *Net) Dropout(name string, x *graph.Value, p float64) *graph.Value {
	if !n.Training || p == 0 {
		return x
	}
	n.dropouts++
	return n.Graph.Dropout(name, x, n.IDs, n.Key, p, n.dropouts)
}
