package nn

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Constants of BatchNorm in torchvision's networks.
const (
	batchNormEps      = 1e-5
	batchNormMomentum = 0.1
)

// Net contains the properties that all layers of a graph have in common.
type Net struct {
	Graph    *graph.Graph
	Training bool
	Compute  tensor.DType // type of activations: f32, bf16, f64
	// GhostGroup is the number of samples of a group for BatchNorm statistics. 0 means the whole batch.
	GhostGroup int
	// Sync makes BatchNorm use the samples of all ranks in training. GhostGroup must then be 0. nil means this rank's
	// samples.
	Sync *graph.Ranks

	// IDs (N) i64 are the sample ids, and Key (2) u32 is the key of the step. Only dropout needs them.
	IDs, Key *graph.Value

	// Head is the name of the layer whose outputs are the logits. Logits sets it.
	Head string

	// With a Cache, attention layers output their keys and values, and read cached ones. It is for generation token by
	// token. nil: no cache.
	Cache *Cache

	dropouts uint32
}

// channels returns the extent of dimension 1 of x (N, C, …). It determines the shapes of parameters.
func channels(name string, x *graph.Value) int {
	if len(x.Shape) < 2 {
		panic(&graph.BuildError{
			Node: name, Err: fmt.Errorf("x: got %d dimensions %v, want at least 2", len(x.Shape), x.Shape)})
	}
	return x.Shape[1]
}

// Conv describes a square convolution. A Stride, Dilation or Groups of 0 means 1.
type Conv struct {
	Out, Kernel, Stride, Padding, Dilation, Groups int
	Bias                                           bool
}

// Conv2D convolves x (N, C, H, W). Initial weights are Kaiming normal (fan out, for ReLU), initial biases are 0.
func (n *Net) Conv2D(name string, x *graph.Value, c Conv) *graph.Value {
	stride, dilation, groups := max(c.Stride, 1), max(c.Dilation, 1), max(c.Groups, 1)
	in := channels(name, x)
	std := math.Sqrt(2 / float64(c.Out*c.Kernel*c.Kernel))
	w := n.Graph.Param(name+".weight", graph.Normal(std), c.Out, in/groups, c.Kernel, c.Kernel)
	var bias *graph.Value
	if c.Bias {
		bias = n.Graph.Param(name+".bias", graph.Const(0), c.Out)
	}
	win := graph.Window{Stride: [2]int{stride, stride}, Padding: [2]int{c.Padding, c.Padding},
		Dilation: [2]int{dilation, dilation}}
	return n.Graph.Conv2D(name, x, w, bias, win, groups)
}

// Norm describes a BatchNorm layer.
type Norm struct {
	ReLU     bool
	Residual *graph.Value // added before ReLU; may be nil
	ZeroInit bool         // the initial gamma is 0, so the initial output of the residual branch is 0
}

// BatchNorm normalises x (N, C, H, W) over samples and pixels. If weight and bias are frozen, it uses the running
// statistics even in training, and does not update them.
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

// Linear maps x (N, I) to (N, out). The parameter to is the type of the result; tensor.Invalid means the compute type.
// Initial weights and biases are uniform in ±1/sqrt(I).
func (n *Net) Linear(name string, x *graph.Value, out int, to tensor.DType) *graph.Value {
	in := channels(name, x)
	bound := 1 / math.Sqrt(float64(in))
	w := n.Graph.Param(name+".weight", graph.Uniform(bound), out, in)
	b := n.Graph.Param(name+".bias", graph.Uniform(bound), out)
	return n.Graph.Linear(name, x, w, b, to)
}

// NextLayer starts the next layer of the model; see graph.Graph.NextLayer.
func (n *Net) NextLayer() { n.Graph.NextLayer() }

// Logits is the last layer of a classifier. It is a Linear layer with an f32 result (f64 in f64 nets), so that the
// loss has full precision.
func (n *Net) Logits(name string, x *graph.Value, classes int) *graph.Value {
	n.Head = name
	return n.Linear(name, x, classes, n.lossType())
}

// lossType returns the type of logits.
func (n *Net) lossType() tensor.DType {
	if n.Compute == tensor.F64 {
		return tensor.F64
	}
	return tensor.F32
}

// MaxPool2D computes the maximum of each square window.
func (n *Net) MaxPool2D(name string, x *graph.Value, kernel, stride, padding int) *graph.Value {
	win := graph.Window{Stride: [2]int{stride, stride}, Padding: [2]int{padding, padding}, Dilation: [2]int{1, 1}}
	return n.Graph.MaxPool2D(name, x, [2]int{kernel, kernel}, win, n.Training)
}

// GlobalAvgPool averages (N, C, H, W) over pixels to (N, C).
func (n *Net) GlobalAvgPool(name string, x *graph.Value) *graph.Value {
	return n.Graph.GlobalAvgPool(name, x)
}

// StochasticDepth drops the branch x (N, C, H, W) of a residual block at random, like torchvision in mode "row". In
// training, it sets x to 0 for a sample with probability p, and scales x by 1/(1-p) for the other samples. As in
// Dropout, the choice depends on the sample and the epoch.
func (n *Net) StochasticDepth(name string, x *graph.Value, p float64) *graph.Value {
	if !n.Training || p == 0 {
		return x
	}
	rows := n.Graph.Full(name+" ones", x.DType, 1, x.Shape[0], 1, 1, 1)
	return n.Graph.Binary(name, graph.Mul, x, n.Dropout(name+" rows", rows, p))
}

// Dropout sets elements to 0 with probability p in training.
func (n *Net) Dropout(name string, x *graph.Value, p float64) *graph.Value {
	if !n.Training || p == 0 {
		return x
	}
	n.dropouts++
	return n.Graph.Dropout(name, x, n.IDs, n.Key, p, n.dropouts)
}
