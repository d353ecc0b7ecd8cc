package dqn

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Network describes the layers of the Q network.
//
// A convolutional network reads the matrix of GPUs row by row. Its filters have a height of 1, so all rows use the same
// weights. Means over the slots describe each row, and a mean over all GPUs describes the cluster. Two fully connected
// layers read the mean of the cluster and the facts:
//
//	image (N, Channels, Rows, Slots) ─ conv1 1x3 ─ ReLU ─ conv2 1x3 ─ ReLU ─ mean ┬ rows (N, Filters, Rows)
//	                                                                              └ cluster (N, Filters) ┐
//	facts (N, Facts) ────────────────────────────────────────────────────────────────────────────────────┴ fc1 ─ ReLU ─ fc2
//
// One small network scores each action. Its inputs are the pair of the action, the features of the action's row, and
// the result of fc2. The weights are the same for all actions. They therefore fit clusters with any number of rows and
// GPUs, and the order of the rows has no effect on the values.
type Network struct {
	Filters int `json:"filters"` // channels of conv1 and conv2
	Hidden  int `json:"hidden"`  // width of fc1
	Pair    int `json:"pair"`    // width of the layers that score an action
}

// DefaultNetwork returns the network with which the results in docs/benchmarks/scheduling.md were measured.
func DefaultNetwork() Network { return Network{Filters: 16, Hidden: 128, Pair: 32} }

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

// graph returns the graph of the network for n observations. If training is true, the graph also computes the gradients
// of all parameters. Its input diff_q (n, Actions) is then the gradient of the loss with respect to q.
func (w Network) graph(s Shape, n int, training bool) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32}
		image := g.Input(inputImage, tensor.F32, n, s.Channels, s.Rows, s.Slots)
		facts := g.Input(inputFacts, tensor.F32, n, s.Facts)
		pairs := g.Input(inputPairs, tensor.F32, n, s.numbered(), s.Pair)
		plane := func(name string, at int) *graph.Value { return g.Slice(name, image, 1, at, 1) } // (n, 1, Rows, Slots)

		x := g.Unary("relu1", graph.ReLU, w.alongRow(g, "conv1", image))
		x = g.Binary("gpus", graph.Mul, x, plane("up", WeightUp)) // an empty slot acts like the end of the row
		x = g.Unary("relu2", graph.ReLU, w.alongRow(g, "conv2", x))
		// (n, Filters, Rows)
		rows := g.Reduce("rows", device.Sum, g.Binary("rows", graph.Mul, x, plane("row weights", WeightRow)), 3)
		// (n, Filters)
		cluster := g.Reduce("cluster", device.Sum,
			g.Binary("cluster", graph.Mul, x, plane("cluster weights", WeightCluster)), 2, 3)

		x = g.Concat("situation", 1, cluster, facts)
		x = g.Unary("relu3", graph.ReLU, net.Linear("fc1", x, w.Hidden, tensor.F32))
		q := w.scores(net, s, n, x, rows, pairs) // (n, Actions)
		g.Output(outputQ, q)
		if training {
			g.Differentiate(q, g.Input(inputDiff, tensor.F32, n, s.Actions()))
		}
	})
}

// alongRow convolves x (N, C, Rows, Slots) with filters of three slots of one row.
func (w Network) alongRow(g *graph.Graph, name string, x *graph.Value) *graph.Value {
	const taps = 3
	std := math.Sqrt(2 / float64(w.Filters*taps)) // Kaiming normal, fan out
	weight := g.Param(name+".weight", graph.Normal(std), w.Filters, x.Shape[1], 1, taps)
	bias := g.Param(name+".bias", graph.Const(0), w.Filters)
	window := graph.Window{Stride: [2]int{1, 1}, Padding: [2]int{0, taps / 2}, Dilation: [2]int{1, 1}}
	return g.Conv2D(name, x, weight, bias, window, 1)
}

// scores returns the value of each action (n, Actions): the value of the state, plus the score of the action or of
// waiting. The parameter x (n, Hidden) describes the state.
func (w Network) scores(net *nn.Net, s Shape, n int, x, rows, pairs *graph.Value) *graph.Value {
	g, triples, numbered := net.Graph, s.triples(), s.numbered()
	x = net.Linear("fc2", x, w.Pair+2, tensor.F32) // (n, Pair + wait + value)
	context := g.Reshape("context", g.Slice("context", x, 1, 0, w.Pair), n, 1, w.Pair)
	wait, value := g.Slice("wait", x, 1, w.Pair, 1), g.Slice("value", x, 1, w.Pair+1, 1)

	row := g.Reshape("row", g.Transpose("row", rows, 0, 2, 1), n*s.Rows, w.Filters)
	row = g.Reshape("row context", net.Linear("row", row, w.Pair, tensor.F32), n, 1, s.Rows, w.Pair)
	y := net.Linear("pair1", g.Reshape("numbers", pairs, n*numbered, s.Pair), w.Pair, tensor.F32)
	y = g.Reshape("pair1", y, n, numbered, w.Pair)
	on := g.Reshape("triples", g.Slice("triples", y, 1, 0, triples), n, s.Jobs*s.Ways, s.Rows, w.Pair)
	on = g.Reshape("triples on rows", g.Binary("pair1 row", graph.Add, on, row), n, triples, w.Pair)
	if s.Extra > 0 {
		on = g.Concat("numbered", 1, on, g.Slice("extra", y, 1, triples, s.Extra))
	}
	y = g.Binary("pair1 context", graph.Add, on, context)
	y = g.Reshape("pair1 rows", g.Unary("relu4", graph.ReLU, y), n*numbered, w.Pair)
	y = g.Unary("relu5", graph.ReLU, net.Linear("pair2", y, w.Pair, tensor.F32))
	y = g.Reshape("score", net.Linear("pair3", y, 1, tensor.F32), n, numbered)
	return g.Binary("q", graph.Add, g.Concat("scores", 1, y, wait), value)
}
