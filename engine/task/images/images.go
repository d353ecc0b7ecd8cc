package images

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Classify is a [task.Task]. Its inputs are the fields of data.Images.
type Classify struct {
	Model          models.Classifier
	Classes        int
	Size           int        // height and width in pixels
	Mean, Std      [3]float32 // red, green, blue; 1 is full scale (255)
	LabelSmoothing float64    // label smoothing in training
	Mixed          bool       // training samples have a second label
}

// Targets implements [task.Task]. An image has one target.
func (Classify) Targets() int { return 1 }

// Report implements [task.Task].
func (c Classify) Report() task.Report {
	return task.Report{Metrics: []task.Metric{task.Top1, task.Top5}, Unit: "img", Units: 1, RateKey: "images_per_sec",
		Classes: c.Classes}
}

// Graph implements [task.Task].
func (c Classify) Graph(net *nn.Net, n int, logits bool) (out task.Outputs) {
	g := net.Graph
	images := g.Input("images", tensor.U8, n, c.Size, c.Size, 3)
	labels := g.Input(task.Labels, tensor.I32, n)
	x := g.ImageNormalize("normalize", images, c.Mean[:], c.Std[:], net.Compute) // (N, 3, H, W)
	scores := c.Model(net, x, c.Classes)                                         // (N, classes)
	out.Loss, out.Position = c.loss(net, scores, labels)
	if logits {
		out.Logits = scores
	}
	return out
}

func (c Classify) loss(net *nn.Net, scores, labels *graph.Value) (loss, position *graph.Value) {
	g, n := net.Graph, labels.Shape[0]
	switch {
	case !net.Training:
		return g.SoftmaxCrossEntropy("loss", scores, labels, 0)
	case !c.Mixed:
		return g.SoftmaxCrossEntropy("loss", scores, labels, c.LabelSmoothing)
	}
	second, lambda := g.Input("second_labels", tensor.I32, n), g.Input("lambda", g.ParamType(), n)
	return g.MixedSoftmaxCrossEntropy("loss", scores, labels, second, lambda, c.LabelSmoothing)
}
