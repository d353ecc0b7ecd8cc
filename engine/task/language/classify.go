package language

import (
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Classify is a [task.Task] in which a model classifies texts, or pairs of texts. The inputs of a sample are Tokens,
// Segments, Lengths and [task.Labels] (), i32: the class.
type Classify struct {
	Model          models.SequenceClassifier
	Classes        int
	Length         int     // number of positions of a sample
	LabelSmoothing float64 // label smoothing in training
	Grouped        bool    // samples are padded to different lengths; the unit of throughput is then a sample
}

// Shorten implements [task.Shortener].
func (c Classify) Shorten(positions int) task.Task {
	c.Length = positions
	return c
}

// Targets implements [task.Task]. A text has one label.
func (Classify) Targets() int { return 1 }

// Report implements [task.Task]. The unit of throughput is one position, including padding.
func (c Classify) Report() task.Report {
	report := task.Report{Metrics: []task.Metric{task.Accuracy, task.F1}, Unit: "tok", Units: c.Length,
		RateKey: "tokens_per_sec", Classes: c.Classes}
	if c.Grouped {
		inSamples(&report)
	}
	return report
}

// Graph implements [task.Task].
func (c Classify) Graph(net *nn.Net, n int, logits bool) (out task.Outputs) {
	g := net.Graph
	in := inputs(g, n, c.Length, true)
	labels := g.Input(task.Labels, tensor.I32, n)
	scores := c.Model(net, in, c.Classes) // (N, classes)
	smoothing := 0.0
	if net.Training {
		smoothing = c.LabelSmoothing
	}
	out.Loss, out.Position = g.SoftmaxCrossEntropy("loss", scores, labels, smoothing)
	if logits {
		out.Logits = scores
	}
	return out
}
