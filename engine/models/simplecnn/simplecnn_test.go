package simplecnn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// build returns the graph for two images. If training is set, the graph contains the loss and the gradients.
func build(o simplecnn.Options, size int, training bool) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32, IDs: g.Input("ids", tensor.I64, 2),
			Key: g.Input("key", tensor.U32, 2)}
		logits := simplecnn.Build(o)(net, g.Input("images", tensor.F32, 2, 3, size, size), 10)
		g.Output("logits", logits)
		if training {
			loss, _ := g.SoftmaxCrossEntropy("loss", logits, g.Input("labels", tensor.I32, 2), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		}
	})
}

var usual = simplecnn.Options{Channels: []int{32, 64, 128}, Dropout: 0.5}

func TestParametersStatesAndGradientsAreThoseOfTheGoldenFile(t *testing.T) {
	g, err := build(usual, 32, true)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, part := range []struct {
		kind   string
		values []*graph.Value
	}{{"param", g.Params}, {"state", g.States}} {
		for _, v := range part.values {
			fmt.Fprintf(&got, "%s %s %v: %v\n", part.kind, v.Name, v.Shape, v.Init)
		}
	}
	for _, gr := range g.Gradients { // in the order in which the backward pass completes them
		fmt.Fprintf(&got, "gradient %s\n", gr.Param.Name)
	}
	golden.Check(t, "testdata/simple_cnn.txt", got.String())
}

func TestEvaluationHasTheSameParametersAndNoDropout(t *testing.T) {
	train, err := build(usual, 32, true)
	if err != nil {
		t.Fatal(err)
	}
	eval, err := build(usual, 32, false)
	if err != nil {
		t.Fatal(err)
	}
	names := func(vs []*graph.Value) (list []string) {
		for _, v := range vs {
			list = append(list, v.String())
		}
		return list
	}
	if got, want := names(slices.Concat(eval.Params, eval.States)),
		names(slices.Concat(train.Params, train.States)); !slices.Equal(got, want) {
		t.Errorf("parameters of evaluation: got %v, want %v", got, want)
	}
	has := func(g *graph.Graph, op device.Op) bool {
		return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op.Kind() == op.Kind() })
	}
	for _, op := range []device.Op{device.Dropout{}, device.BatchNormStats{}, device.BatchNormRunning{}} {
		if !has(train, op) || has(eval, op) {
			t.Errorf("%s: got %v in training and %v in evaluation, want it in training alone", op.Kind(),
				has(train, op), has(eval, op))
		}
	}
}

func TestImageSmallerThanTheBlocksHalveIsAnErrorNamingTheBlock(t *testing.T) {
	for _, c := range []struct {
		size   int
		blocks int
		want   string // name of the node in the error; "": no error
	}{
		{32, 5, ""},
		{32, 6, "block5.pool"},
		{7, 3, "block2.pool"},
		{1, 1, "block0.pool"},
	} {
		t.Run(fmt.Sprintf("%d pixels, %d blocks", c.size, c.blocks), func(t *testing.T) {
			_, err := build(simplecnn.Options{Channels: slices.Repeat([]int{4}, c.blocks)}, c.size, true)
			var fault *graph.BuildError
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &fault) || fault.Node != c.want):
				t.Errorf("got %v, want a BuildError of %s", err, c.want)
			}
		})
	}
}
