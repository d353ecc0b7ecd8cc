package images

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Classify is a [task.Task]. Its inputs are the fields of data.Images.
//
// If Independent is set, an image may have any number of the classes. Each class is then a target with the label 1 or
// 0, and the probability of 1 is the sigmoid of the score. The loss is the mean of the binary cross-entropy over images
// and classes (PyTorch's BCEWithLogitsLoss).
type Classify struct {
	Model          models.Classifier
	Classes        int
	Independent    bool
	Size           int        // height and width in pixels
	Mean, Std      [3]float32 // red, green, blue; 1 is full scale (255)
	LabelSmoothing float64    // label smoothing in training
	Mixed          bool       // training samples have a second label
}

// Targets implements [task.Task]. An image has one target, or one for each independent class.
func (c Classify) Targets() int {
	if c.Independent {
		return c.Classes
	}
	return 1
}

// Report implements [task.Task].
func (c Classify) Report() task.Report {
	r := task.Report{Metrics: []task.Metric{task.Top1, task.Top5}, Unit: "img", Units: 1, RateKey: "images_per_sec",
		Classes: c.Classes, Independent: c.Independent}
	if c.Independent {
		r.Metrics = []task.Metric{task.MicroF1, task.MacroF1, task.LabelAccuracy}
	}
	return r
}

// Graph implements [task.Task].
func (c Classify) Graph(net *nn.Net, n int, logits bool) (out task.Outputs) {
	g := net.Graph
	images := g.Input("images", tensor.U8, n, c.Size, c.Size, 3)
	labels := g.Input(task.Labels, tensor.I32, n*c.Targets())
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
	if c.Independent {
		// The softmax of the scores 0 and z is the sigmoid of z. Each class is therefore a target with two classes,
		// whose scores are 0 and z.
		zeros := g.Full("scores of label 0", scores.DType, 0, n, 1)
		scores = g.Concat("scores of labels 0 and 1", 1, zeros, g.Reshape("scores of label 1", scores, n, 1))
	}
	switch {
	case !net.Training:
		return g.SoftmaxCrossEntropy("loss", scores, labels, 0)
	case !c.Mixed:
		return g.SoftmaxCrossEntropy("loss", scores, labels, c.LabelSmoothing)
	}
	second, lambda := g.Input("second_labels", tensor.I32, n), g.Input("lambda", g.ParamType(), n)
	return g.MixedSoftmaxCrossEntropy("loss", scores, labels, second, lambda, c.LabelSmoothing)
}
