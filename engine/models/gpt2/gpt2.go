package gpt2

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

const (
	std = 0.02 // deviation of initial weights
	eps = 1e-5 // of LayerNorm
)

// Size describes a member of the family.
type Size struct {
	Vocabulary int // ids of tokens
	Positions  int // longest sequence
	Layers     int
	Heads      int
	Channels   int // a multiple of Heads
}

// Family maps names to sizes.
var Family = map[string]Size{
	"gpt2":        {Vocabulary: 50257, Positions: 1024, Layers: 12, Heads: 12, Channels: 768},
	"gpt2-medium": {Vocabulary: 50257, Positions: 1024, Layers: 24, Heads: 16, Channels: 1024},
	"gpt2-large":  {Vocabulary: 50257, Positions: 1024, Layers: 36, Heads: 20, Channels: 1280},
	"gpt2-xl":     {Vocabulary: 50257, Positions: 1024, Layers: 48, Heads: 25, Channels: 1600},
}

// Options are the settings of the model. The published models train with 0.1 for each probability.
type Options struct {
	EmbeddingDropout float64
	AttentionDropout float64
	ResidualDropout  float64
}

// Build returns the network of a size.
//
// Legend: N samples, T positions, C channels.
func Build(s Size, o Options) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		tables := graph.Tables{
			Weight:    net.Table("transformer.wte", s.Vocabulary, s.Channels, std),
			Positions: net.Table("transformer.wpe", s.Positions, s.Channels, std),
		}
		x := net.Graph.Embedding("transformer.embedding", in.Tokens, tables, net.Compute) // (N, T, C)
		x = net.Dropout("transformer.drop", x, o.EmbeddingDropout)
		var branch *graph.Value // of the layer before, not yet added to x
		for i := range s.Layers {
			net.NextLayer()
			name := fmt.Sprintf("transformer.h.%d", i)
			var h *graph.Value
			h, x = norm(net, name+".ln_1", x, branch)
			h, x = norm(net, name+".ln_2", x, attention(net, name+".attn", h, in, s, o))
			branch = feedForward(net, name+".mlp", h, s, o)
		}
		net.NextLayer()
		h, _ := norm(net, "transformer.ln_f", x, branch)
		return models.Prediction{Rows: net.Rows(h), Weight: tables.Weight}
	}
}

// norm adds a branch to x, unless it is nil, and normalises the sum. It returns both.
func norm(net *nn.Net, name string, x, branch *graph.Value) (h, sum *graph.Value) {
	if branch == nil {
		return net.LayerNorm(name, x, nil, eps)
	}
	return net.LayerNorm(name, branch, x, eps)
}

// branchStd is the deviation of the weights that end a branch. Each layer adds two branches to x.
func branchStd(s Size) float64 { return std / math.Sqrt(2*float64(s.Layers)) }

func attention(net *nn.Net, name string, h *graph.Value, in models.Tokens, s Size, o Options) *graph.Value {
	qkv := net.Projection(name+".c_attn", h, 3*s.Channels, std) // (N, T, 3C)
	a := net.Attention(name, nn.Attention{Heads: s.Heads, Causal: true, Lengths: in.Lengths, Dropout: o.AttentionDropout}, qkv)
	a = net.Projection(name+".c_proj", a, s.Channels, branchStd(s)) // (N, T, C)
	return net.Dropout(name+".resid_dropout", a, o.ResidualDropout)
}

func feedForward(net *nn.Net, name string, h *graph.Value, s Size, o Options) *graph.Value {
	f := net.ProjectionGELU(name+".c_fc", h, 4*s.Channels, std, graph.GELUTanh) // (N, T, 4C)
	f = net.Projection(name+".c_proj", f, s.Channels, branchStd(s))             // (N, T, C)
	return net.Dropout(name+".dropout", f, o.ResidualDropout)
}
