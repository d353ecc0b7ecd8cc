package gpt2

import (
	"cmp"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

const std = 0.02 // standard deviation of the initial weights

// Settings of the published models.
const (
	Activation = "gelu_new"
	Eps        = 1e-5
)

// Size describes a model of the family.
type Size struct {
	Vocabulary int // number of tokens
	Positions  int // largest number of positions of a sequence
	Layers     int
	Heads      int
	Channels   int // number of channels, a multiple of Heads

	Inner      int     // number of channels of the feed-forward layer; 0: 4·Channels
	Activation string  // function of the feed-forward layer, one of models.Activations; "": Activation
	Eps        float64 // epsilon of LayerNorm; 0: Eps
}

// Family contains the sizes of the published models.
var Family = map[string]Size{
	"gpt2":        {Vocabulary: 50257, Positions: 1024, Layers: 12, Heads: 12, Channels: 768},
	"gpt2-medium": {Vocabulary: 50257, Positions: 1024, Layers: 24, Heads: 16, Channels: 1024},
	"gpt2-large":  {Vocabulary: 50257, Positions: 1024, Layers: 36, Heads: 20, Channels: 1280},
	"gpt2-xl":     {Vocabulary: 50257, Positions: 1024, Layers: 48, Heads: 25, Channels: 1600},
}

// Options are the settings of the model. The published models use 0.1 for all dropout probabilities.
type Options struct {
	EmbeddingDropout float64
	AttentionDropout float64
	ResidualDropout  float64
}

// Build returns the language model of the given size.
//
// Legend: N samples, T positions, C channels.
func Build(s Size, o Options) models.Language {
	s.Inner, s.Activation, s.Eps = cmp.Or(s.Inner, 4*s.Channels), cmp.Or(s.Activation, Activation), cmp.Or(s.Eps, Eps)
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		wte := net.Table("transformer.wte", s.Vocabulary, s.Channels, std)
		x := embedding(net, in, wte, net.Table("transformer.wpe", s.Positions, s.Channels, std)) // (N, T, C)
		x = net.Dropout("transformer.drop", x, o.EmbeddingDropout)
		var branch *graph.Value // result of the previous branch, not yet added to x
		for i := range s.Layers {
			net.NextLayer()
			name := fmt.Sprintf("transformer.h.%d", i)
			var h *graph.Value
			h, x = norm(net, name+".ln_1", x, branch, s)
			h, x = norm(net, name+".ln_2", x, attention(net, name+".attn", h, in, s, o), s)
			branch = feedForward(net, name+".mlp", h, s, o)
		}
		net.NextLayer()
		h, _ := norm(net, "transformer.ln_f", x, branch, s)
		return models.Prediction{Rows: net.Rows(h), Weight: wte}
	}
}

func embedding(net *nn.Net, in models.Tokens, wte, wpe *graph.Value) *graph.Value {
	const name = "transformer.embedding"
	g := net.Graph
	if in.Positions == nil {
		return g.Embedding(name, in.Tokens, graph.Tables{Weight: wte, Positions: wpe}, net.Compute)
	}
	return g.Binary(name, graph.Add, g.Embedding(name+" tokens", in.Tokens, graph.Tables{Weight: wte}, net.Compute),
		g.Embedding(name+" positions", in.Positions, graph.Tables{Weight: wpe}, net.Compute))
}

// norm adds a branch to x and normalises the sum. The parameter branch may be nil. norm returns the normalised value
// and the sum.
func norm(net *nn.Net, name string, x, branch *graph.Value, s Size) (h, sum *graph.Value) {
	if branch == nil {
		return net.LayerNorm(name, x, nil, s.Eps)
	}
	return net.LayerNorm(name, branch, x, s.Eps)
}

// branchStd returns the standard deviation of the weights that end a branch. Each layer has two branches.
func branchStd(s Size) float64 { return std / math.Sqrt(2*float64(s.Layers)) }

func attention(net *nn.Net, name string, h *graph.Value, in models.Tokens, s Size, o Options) *graph.Value {
	qkv := net.Projection(name+".c_attn", h, 3*s.Channels, std) // (N, T, 3C)
	a := net.Attention(name, nn.Attention{Heads: s.Heads, Causal: true, Lengths: in.Lengths,
		Dropout: o.AttentionDropout}, qkv)
	a = net.Projection(name+".c_proj", a, s.Channels, branchStd(s)) // (N, T, C)
	return net.Dropout(name+".resid_dropout", a, o.ResidualDropout)
}

func feedForward(net *nn.Net, name string, h *graph.Value, s Size, o Options) *graph.Value {
	f := net.ProjectionFunc(name+".c_fc", h, s.Inner, std, models.Activation(s.Activation)) // (N, T, inner)
	f = net.Projection(name+".c_proj", f, s.Channels, branchStd(s))                         // (N, T, C)
	return net.Dropout(name+".dropout", f, o.ResidualDropout)
}
