// Command op adds the op x·sigmoid(x) to hetero-train (Swish, arXiv:1710.05941). It also adds a model that uses this
// op.
package main

import (
	"math"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/program"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Swish computes x·sigmoid(x) for each element.
type Swish struct{}

func (Swish) Kind() string { return "swish" }

// Infer returns the shapes and types of the outputs, which are those of the input.
func (Swish) Infer(in []device.TensorSpec) ([]device.TensorSpec, error) { return in[:1], nil }

// Gradient returns diff·s·(1 + x·(1 - s)), where s is sigmoid(x) and 1 - s is sigmoid(-x).
func (Swish) Gradient(g *graph.Graph, n *graph.Node, diff []*graph.Value, _ func(int) bool) []*graph.Value {
	x := n.In[0]
	s, rest := g.Unary("sigmoid", device.Sigmoid, x),
		g.Unary("rest", device.Sigmoid, g.Unary("negative", device.Neg, x))
	slope := g.Binary("slope", device.Add, g.Binary("product", device.Mul, x, rest), g.Full("one", x.DType, 1, 1))
	return []*graph.Value{g.Binary("diff", device.Mul, diff[0], g.Binary("derivative", device.Mul, s, slope))}
}

// Decompose replaces the op by other ops. Devices without a kernel for Swish use the result.
func (Swish) Decompose(g *graph.Graph, in []*graph.Value) []*graph.Value {
	return []*graph.Value{g.Binary("product", device.Mul, in[0], g.Unary("sigmoid", device.Sigmoid, in[0]))}
}

// Compute is the kernel of the reference device. It is optional, because the op has a decomposition.
func (Swish) Compute(in, out []device.Elements) {
	for i, x := range in[0].Values {
		out[0].Values[i] = x / (1 + math.Exp(-x))
	}
}

type options struct{ program.NoKeys }

func (options) Build() models.Classifier {
	return func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		x = net.Conv2D("conv1", x, nn.Conv{Out: 16, Kernel: 3, Padding: 1}) // (N, 16, H, W)
		x = net.Graph.Apply("swish1", Swish{}, net.BatchNorm("bn1", x, nn.Norm{}))[0]
		x = net.Conv2D("conv2", x, nn.Conv{Out: 32, Kernel: 3, Stride: 2, Padding: 1}) // (N, 32, H/2, W/2)
		x = net.Graph.Apply("swish2", Swish{}, net.BatchNorm("bn2", x, nn.Norm{}))[0]
		return net.Logits("fc", net.GlobalAvgPool("pool", x), classes)
	}
}

func main() {
	program.Main(program.Model{Name: "swish", Doc: "two layers with Swish", New: func() program.ModelOptions {
		return options{}
	}})
}
