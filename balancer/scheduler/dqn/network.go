package dqn

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Network describes the layers of the Q network.
//
// A convolutional network reads the matrix of GPUs. Two fully connected layers read its result and the facts:
//
//	image (N, Channels, Machines, Slots) ─ conv1 3x3 ─ ReLU ─ conv2 3x3 ─ ReLU ┐
//	facts (N, Facts) ──────────────────────────────────────────────────────────┴ fc1 ─ ReLU ─ fc2
//
// Without Shared, fc2 has one output for each action: the network distinguishes actions only by their position.
//
// With Shared, the outputs of fc2 describe the situation. One small network of two layers scores each pair of a job and
// a column from the features of the pair and the situation. All pairs use the same weights. The network therefore
// applies its experience with one pair to every other pair, even on GPUs that the training cluster did not have.
type Network struct {
	Filters int  `json:"filters"` // channels of conv1 and conv2
	Hidden  int  `json:"hidden"`  // width of fc1
	Pair    int  `json:"pair"`    // width of the layers of the pair network
	Shared  bool `json:"shared"`
}

// DefaultNetwork is the network of the figures in docs/benchmarks/scheduling.md.
func DefaultNetwork() Network { return Network{Filters: 16, Hidden: 128, Pair: 32, Shared: true} }

func (n Network) check() error {
	if n.Filters < 1 || n.Hidden < 1 || n.Pair < 1 {
		return fmt.Errorf("network: got %+v, want Filters, Hidden and Pair of at least 1", n)
	}
	return nil
}

// Names of inputs and of the output of the graphs.
const (
	inputImage = "image"
	inputFacts = "facts"
	inputPairs = "pairs"
	inputDiff  = "diff_q"
	outputQ    = "q"
)

// graph returns the network for n observations. With training, input diff_q (n, Actions) is the gradient of the loss
// with respect to q, and the graph has the gradients of all parameters.
func (w Network) graph(s Shape, n int, training bool) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32}
		image := g.Input(inputImage, tensor.F32, n, s.Channels, s.Machines, s.Slots)
		facts := g.Input(inputFacts, tensor.F32, n, s.Facts)
		pairs := g.Input(inputPairs, tensor.F32, n, s.rows(), s.Pair)

		conv := nn.Conv{Out: w.Filters, Kernel: 3, Padding: 1, Bias: true}
		x := g.Unary("relu1", graph.ReLU, net.Conv2D("conv1", image, conv))
		x = g.Unary("relu2", graph.ReLU, net.Conv2D("conv2", x, conv))
		x = g.Reshape("flat", x, n, w.Filters*s.Machines*s.Slots)
		x = g.Concat("situation", 1, x, facts)
		x = g.Unary("relu3", graph.ReLU, net.Linear("fc1", x, w.Hidden, tensor.F32))

		var q *graph.Value // (n, Actions)
		if w.Shared {
			q = w.scores(net, s, n, x, pairs)
		} else {
			q = net.Linear("fc2", x, s.Actions(), tensor.F32)
		}
		g.Output(outputQ, q)
		if training {
			g.Differentiate(q, g.Input(inputDiff, tensor.F32, n, s.Actions()))
		}
	})
}

// scores returns the value (n, Actions) of each action: the value of the situation, plus the score of the pair or of
// waiting.
func (w Network) scores(net *nn.Net, s Shape, n int, x, pairs *graph.Value) *graph.Value {
	g, rows := net.Graph, s.rows()
	x = net.Linear("fc2", x, w.Pair+2, tensor.F32) // (n, Pair + wait + value)
	context := g.Reshape("context", g.Slice("context", x, 1, 0, w.Pair), n, 1, w.Pair)
	wait, value := g.Slice("wait", x, 1, w.Pair, 1), g.Slice("value", x, 1, w.Pair+1, 1)

	y := net.Linear("pair1", g.Reshape("rows", pairs, n*rows, s.Pair), w.Pair, tensor.F32)
	y = g.Binary("pair1 context", graph.Add, g.Reshape("pair1", y, n, rows, w.Pair), context)
	y = g.Reshape("pair1 rows", g.Unary("relu4", graph.ReLU, y), n*rows, w.Pair)
	y = g.Unary("relu5", graph.ReLU, net.Linear("pair2", y, w.Pair, tensor.F32))
	y = g.Reshape("score", net.Linear("pair3", y, 1, tensor.F32), n, rows)
	return g.Binary("q", graph.Add, g.Concat("scores", 1, y, wait), value)
}
