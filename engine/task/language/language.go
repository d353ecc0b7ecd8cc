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
	Tokens   = "tokens"   // (T), i32: tokens
	Segments = "segments" // (T), i32: 0 for the first text of a pair, 1 for the second text; only with Padded
	Lengths  = "lengths"  // (), i32: number of positions that are not padding; only with Padded
	// Next is (), i32: 0 if the second text follows the first one, 1 if the second text is random; only with
	// NextSentence.
	Next = "next_sentence"
)

// Predict is a [task.Task] in which a model predicts tokens, for example the next ones or masked ones.
type Predict struct {
	Model  models.Language
	Length int // number of positions of a sample
	// Padded adds the inputs Segments and Lengths.
	Padded bool
	// Masked states that the targets are masked tokens. It only changes the names of metrics.
	Masked bool
	// NextSentence adds the input Next, which the model predicts for each sample (models.Prediction.Next).
	NextSentence bool
	// Grouped states that samples are padded to different lengths. The unit of throughput is then a sample.
	Grouped bool
	// Counted is the expected fraction of the positions that have a label, for FLOPs. 0: all positions.
	Counted float64
}

// Shorten implements [task.Shortener].
func (p Predict) Shorten(positions int) task.Task {
	p.Length = positions
	return p
}

// Targets implements [task.Task].
func (p Predict) Targets() int { return p.Length }

// Report implements [task.Task]. The unit of throughput is one position, including padding.
func (p Predict) Report() task.Report {
	accuracy := task.Accuracy
	if p.Masked {
		accuracy = task.MaskedAccuracy
	}
	report := task.Report{Metrics: []task.Metric{task.Perplexity, accuracy}, Unit: "tok", Units: p.Length,
		RateKey: "tokens_per_sec"}
	if p.Grouped {
		inSamples(&report)
	}
	if p.NextSentence {
		report.Metrics, report.SampleTarget = append(report.Metrics, task.NextSentence), true
	}
	return report
}

// inSamples makes a sample the unit of throughput.
func inSamples(r *task.Report) { r.Unit, r.Units, r.RateKey = "samples", 1, "samples_per_sec" }

// Graph implements [task.Task].
func (p Predict) Graph(net *nn.Net, n int, logits bool) (out task.Outputs) {
	g := net.Graph
	in := inputs(g, n, p.Length, p.Padded)
	labels := g.Input(task.Labels, tensor.I32, n*p.Length)
	made := p.Model(net, in)
	out.Loss, out.Position = g.SparseLinearCrossEntropy("loss", p.Counted, made.Rows, made.Weight, labels, made.Bias)
	if logits {
		out.Logits = p.logits(g, made)
	}
	if p.NextSentence {
		out.SampleLoss, out.SamplePosition = g.SoftmaxCrossEntropy("next sentence loss", made.Next,
			g.Input(Next, tensor.I32, n), 0)
	}
	return out
}

// inputs declares the inputs of n samples of the given length.
func inputs(g *graph.Graph, n, length int, padded bool) models.Tokens {
	in := models.Tokens{Tokens: g.Input(Tokens, tensor.I32, n, length)}
	if padded {
		in.Segments, in.Lengths = g.Input(Segments, tensor.I32, n, length), g.Input(Lengths, tensor.I32, n)
	}
	return in
}

// logits computes the scores of all tokens of the vocabulary at each position.
func (p Predict) logits(g *graph.Graph, made models.Prediction) *graph.Value {
	return g.Linear("logits", made.Rows, made.Weight, made.Bias, g.ParamType())
}
