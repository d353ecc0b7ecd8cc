package models

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Tokens contains the inputs of a language model. Legend: N samples, T positions.
type Tokens struct {
	Tokens   *graph.Value // (N, T) i32: tokens
	Segments *graph.Value // (N, T) i32: 0 in the first text of a pair, 1 in the second; nil: all 0, or unused
	Lengths  *graph.Value // (N) i32: number of positions of each sample without padding; nil: all positions

	// Positions (N, T) i32 is the position of each token in its text; nil: 0 to T-1. It is set together with Net.Cache,
	// for causal models only. A model that reads it can use a key-value cache.
	Positions *graph.Value
}

// At returns the rows of a table (P, …) that belong to the positions of the tokens: (1, T, …), or (N, T, …) with
// Positions. The table is a parameter, or a constant such as the cosines of a rotary embedding.
func (in Tokens) At(net *nn.Net, name string, table *graph.Value) *graph.Value {
	g, row := net.Graph, table.Shape[1:]
	if in.Positions == nil {
		t := in.Tokens.Shape[1]
		return g.Reshape(name, g.Slice(name, table, 0, 0, t), append([]int{1, t}, row...)...)
	}
	wide := table
	if wide.DType != g.ParamType() { // Embedding reads only tables of this type
		wide = g.Cast(name, table, g.ParamType())
	}
	rows := g.Embedding(name, in.Positions,
		graph.Tables{Weight: g.Reshape(name, wide, table.Shape[0], int(row.Elements()))}, table.DType)
	return g.Reshape(name, rows, append(in.Positions.Shape.Clone(), row...)...)
}

// Language builds the forward pass of a language model, from tokens to the operands of the loss.
type Language func(net *nn.Net, in Tokens) Prediction

// Prediction contains the operands of graph.LinearCrossEntropy. Row n·T + t belongs to position t of sample n. The
// logits of all rows are Rows·Weightᵀ + Bias. graph.LinearCrossEntropy limits the memory for logits. To get the logits
// of a few rows, apply graph.Linear to these rows.
type Prediction struct {
	Rows   *graph.Value // (N·T, C)
	Weight *graph.Value // (V, C), usually also the embedding table
	Bias   *graph.Value // (V); nil without bias

	// Next (N, 2) contains two scores for each pair of texts: that the second text follows the first one, and that the
	// second text is a random one. nil: the model does not predict the next sentence.
	Next *graph.Value
}

// SequenceClassifier builds the forward pass of a text classifier, from tokens to logits (N, classes).
type SequenceClassifier func(net *nn.Net, in Tokens, classes int) *graph.Value
