package language

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Names of the inputs for T positions. A further input is [task.Labels] (T), i32. It contains the token to predict at
// each position, or a value below 0 if the position has none.
const (
	Tokens = "tokens" // (T), i32: tokens
)

// Predict is a [task.Task] in which a model predicts a token at each position, for example the next token.
type Predict struct {
	Model  models.Language
	Length int // number of positions of a sample
}

// Targets implements [task.Task].
func (p Predict) Targets() int { return p.Length }

// Report implements [task.Task]. The unit of throughput is one position.
func (p Predict) Report() task.Report {
	return task.Report{Metrics: []task.Metric{task.Perplexity, task.Accuracy}, Unit: "tok", Units: p.Length, RateKey: "tokens_per_sec"}
}

// Graph implements [task.Task].
func (p Predict) Graph(net *nn.Net, n int, logits bool) (out task.Outputs) {
	g := net.Graph
	in := models.Tokens{Tokens: g.Input(Tokens, tensor.I32, n, p.Length)}
	labels := g.Input(task.Labels, tensor.I32, n*p.Length)
	made := p.Model(net, in)
	out.Loss, out.Position = g.LinearCrossEntropy("loss", made.Rows, made.Weight, labels, made.Bias)
	if logits {
		out.Logits = p.logits(g, made)
	}
	return out
}

// logits computes the scores of all tokens of the vocabulary at each position.
func (p Predict) logits(g *graph.Graph, made models.Prediction) *graph.Value {
	return g.Linear("logits", made.Rows, made.Weight, made.Bias, g.ParamType())
}
