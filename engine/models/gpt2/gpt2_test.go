package gpt2_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func build(t *testing.T, s gpt2.Size, o gpt2.Options, training bool) *graph.Graph {
	t.Helper()
	g, err := graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32, IDs: g.Input("ids", tensor.I64, 2),
			Key: g.Input("key", tensor.U32, 2)}
		p := gpt2.Build(s, o)(net, models.Tokens{Tokens: g.Input("tokens", tensor.I32, 2, 8)})
		loss, _ := g.LinearCrossEntropy("loss", p.Rows, p.Weight, g.Input("labels", tensor.I32, 16), p.Bias)
		g.Output("loss", loss)
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestParameterCountsArePublished compares the models with the published checkpoints.
func TestParameterCountsArePublished(t *testing.T) {
	for name, want := range map[string]int64{"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
		"gpt2-xl": 1_557_611_200} {
		if got := build(t, gpt2.Family[name], gpt2.Options{}, false).ParamCount(); got != want {
			t.Errorf("%s: got %d parameters, want %d", name, got, want)
		}
	}
}

func TestEachDropoutHasItsOwnStreams(t *testing.T) {
	size := gpt2.Size{Vocabulary: 9, Positions: 8, Layers: 2, Heads: 3, Channels: 12}
	options := gpt2.Options{EmbeddingDropout: 0.1, AttentionDropout: 0.2, ResidualDropout: 0.3}
	streams := map[uint32]string{}
	take := func(n *graph.Node, stream uint32) {
		if other, taken := streams[stream]; taken {
			t.Errorf("%s and %s have stream %d", other, n.Name, stream)
		}
		streams[stream] = n.Name
	}
	for _, n := range build(t, size, options, true).Nodes {
		switch op := n.Op.(type) {
		case device.Dropout:
			take(n, op.Stream)
		case device.Attention:
			for h := range uint32(op.Heads) {
				take(n, op.Stream+h)
			}
		}
	}
	if want := 1 + 2*(2+size.Heads); len(streams) != want {
		t.Errorf("got %d streams, want %d", len(streams), want)
	}
	for _, n := range build(t, size, options, false).Nodes {
		if op, ok := n.Op.(device.Attention); n.Op.Kind() == "dropout" || ok && op.P > 0 {
			t.Errorf("%s drops in evaluation", n.Name)
		}
	}
}

func TestASequenceBeyondThePositionsIsRefused(t *testing.T) {
	_, err := graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Compute: tensor.F32}
		gpt2.Build(gpt2.Size{Vocabulary: 9, Positions: 8, Layers: 1, Heads: 1, Channels: 4}, gpt2.Options{})(net,
			models.Tokens{Tokens: g.Input("tokens", tensor.I32, 2, 9)})
	})
	if err == nil {
		t.Error("got no error for 9 tokens of a model with 8 positions")
	}
}
