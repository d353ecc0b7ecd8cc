package models

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Tokens are the inputs of a language model. Legend: N samples, T positions.
type Tokens struct {
	Tokens   *graph.Value // (N, T) i32: ids of the vocabulary
	Segments *graph.Value // (N, T) i32: 0 for the first text of a pair, 1 for the second; nil: all 0, or a model without segments
	Lengths  *graph.Value // (N) i32: positions of each sample that are not padding; nil: all
}

// Language builds the forward pass of a language model, from tokens to the operands of its loss.
type Language func(net *nn.Net, in Tokens) Prediction

// Prediction holds the operands of graph.LinearCrossEntropy: row n·T + t is position t of sample n. The logits of all
// rows are Rows·Weightᵀ + Bias. Training computes them in parts; graph.Linear computes them for a few rows.
type Prediction struct {
	Rows   *graph.Value // (N·T, C)
	Weight *graph.Value // (V, C), also the table of the embedding
	Bias   *graph.Value // (V), nil without one
}

// SequenceClassifier builds the forward pass of a classifier of texts: from tokens to logits (N, classes).
type SequenceClassifier func(net *nn.Net, in Tokens, classes int) *graph.Value
