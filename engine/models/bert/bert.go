package bert

import (
	"cmp"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

const std = 0.02 // standard deviation of the initial weights

// Settings of the published models.
const (
	Activation = "gelu"
	Eps        = 1e-12
)

// Size describes a model of the family.
type Size struct {
	Vocabulary int // number of tokens
	Positions  int // largest number of positions of a sequence
	Segments   int // number of segment types
	Layers     int
	Heads      int
	Channels   int // number of channels, a multiple of Heads

	Inner      int     // number of channels of the feed-forward layer; 0: 4·Channels
	Activation string  // function of the feed-forward layer, one of models.Activations; "": Activation
	Eps        float64 // epsilon of LayerNorm; 0: Eps
}

// complete replaces zero values by those of the published models.
func (s Size) complete() Size {
	s.Inner, s.Activation, s.Eps = cmp.Or(s.Inner, 4*s.Channels), cmp.Or(s.Activation, Activation), cmp.Or(s.Eps, Eps)
	return s
}

// Family contains the sizes of the published models.
var Family = map[string]Size{
	"bert_base":  {Vocabulary: 30522, Positions: 512, Segments: 2, Layers: 12, Heads: 12, Channels: 768},
	"bert_large": {Vocabulary: 30522, Positions: 512, Segments: 2, Layers: 24, Heads: 16, Channels: 1024},
}

// Options are the settings of the model. The published models use 0.1 for both dropout probabilities.
type Options struct {
	HiddenDropout    float64 // dropout probability of the embedding and of the result of each branch
	AttentionDropout float64

	// NextSentence adds the classifier that predicts whether the second text of a sample follows the first one.
	NextSentence bool
}

// Build returns the masked language model of the given size.
//
// Legend: N samples, T positions, C channels.
func Build(s Size, o Options) models.Language {
	s = s.complete()
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		h, table := encoder(net, in, s, o) // (N, T, C)
		var pooled *graph.Value
		if o.NextSentence {
			pooled = pooler(net, h)
		}
		h = net.ProjectionFunc("cls.predictions.transform.dense", h, s.Channels, std, models.Activation(s.Activation))
		h, _ = net.LayerNorm("cls.predictions.transform.LayerNorm", h, nil, s.Eps)
		bias := net.Graph.Param("cls.predictions.bias", graph.Const(0), s.Vocabulary)
		made := models.Prediction{Rows: net.Rows(h), Weight: table, Bias: bias}
		if o.NextSentence {
			made.Next = net.NormalLogits("cls.seq_relationship", pooled, 2, std)
		}
		return made
	}
}

// BuildClassifier returns a classifier for fine-tuning. It reads the hidden state of the first position.
func BuildClassifier(s Size, o Options) models.SequenceClassifier {
	s = s.complete()
	return func(net *nn.Net, in models.Tokens, classes int) *graph.Value {
		h, _ := encoder(net, in, s, o)
		return net.NormalLogits("classifier", net.Dropout("dropout", pooler(net, h), o.HiddenDropout), classes, std)
	}
}

// pooler returns the summary (N, C) of each sample. It reads the hidden state of the first position.
func pooler(net *nn.Net, h *graph.Value) *graph.Value {
	n, channels := h.Shape[0], h.Shape[2]
	first := net.Graph.Reshape("first", net.Graph.Slice("first", h, 1, 0, 1), n, channels)
	return net.Graph.Unary("bert.pooler", graph.Tanh, net.Projection("bert.pooler.dense", first, channels, std))
}

// encoder returns the hidden states (N, T, C) and the token embedding table (Vocabulary, C).
func encoder(net *nn.Net, in models.Tokens, s Size, o Options) (h, table *graph.Value) {
	const name = "bert.embeddings"
	tables := graph.Tables{
		Weight:    net.Table(name+".word_embeddings", s.Vocabulary, s.Channels, std),
		Positions: net.Table(name+".position_embeddings", s.Positions, s.Channels, std),
		Segments:  in.Segments,
		Kinds:     net.Table(name+".token_type_embeddings", s.Segments, s.Channels, std),
	}
	if tables.Segments == nil {
		tables.Segments = net.Graph.Zeros("segments", in.Tokens.Shape...)
	}
	x := net.Graph.Embedding(name, in.Tokens, tables, net.Compute)
	x, _ = net.LayerNorm(name+".LayerNorm", x, nil, s.Eps)
	x = net.Dropout(name+".dropout", x, o.HiddenDropout)
	for i := range s.Layers {
		net.NextLayer()
		x = layer(net, fmt.Sprintf("bert.encoder.layer.%d", i), x, in, s, o)
	}
	net.NextLayer()
	return x, tables.Weight
}

// layer builds attention and a feed-forward network. Each of the two is a branch: its result is added to its input,
// and the sum is normalised.
func layer(net *nn.Net, name string, x *graph.Value, in models.Tokens, s Size, o Options) *graph.Value {
	self := name + ".attention.self"
	q := net.Projection(self+".query", x, s.Channels, std)
	k := net.Projection(self+".key", x, s.Channels, std)
	v := net.Projection(self+".value", x, s.Channels, std)
	a := net.Attention(self, nn.Attention{Heads: s.Heads, Lengths: in.Lengths, Dropout: o.AttentionDropout}, q, k, v)
	x = output(net, name+".attention.output", a, x, s, o)
	f := net.ProjectionFunc(name+".intermediate.dense", x, s.Inner, std, models.Activation(s.Activation))
	return output(net, name+".output", f, x, s, o)
}

// output ends a branch: it projects the branch, adds the input x, and normalises the sum.
func output(net *nn.Net, name string, branch, x *graph.Value, s Size, o Options) *graph.Value {
	branch = net.Dropout(name+".dropout", net.Projection(name+".dense", branch, s.Channels, std), o.HiddenDropout)
	h, _ := net.LayerNorm(name+".LayerNorm", branch, x, s.Eps)
	return h
}
