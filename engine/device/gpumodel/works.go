package gpumodel

import "math"

// The GPU and the element type of the measurements.
const (
	MeasuredGPU  = "h100"
	MeasuredType = "bf16"
)

// NarrowVariable is the environment variable of package cuda that Options.NarrowGradients describes.
const NarrowVariable = "HETERO_CUDA_NARROW_GRADIENTS"

// Work is a training step that was measured on the H100.
type Work struct {
	Name      string  `json:"name"`
	Trace     string  `json:"trace,omitempty"`  // name in testdata/h100.tsv; "": it has no ops of this step
	Narrow    bool    `json:"narrow_gradients"` // Options.NarrowGradients
	Settings  string  `json:"settings"`         // flags of the plan, besides bf16 and SGD with momentum
	Measured  float64 `json:"measured_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	Fitted    bool    `json:"fitted"` // the efficiencies were derived from this step
	// error of the prediction before this step led to a correction of the model; 0: no correction
	FirstError float64 `json:"first_error,omitempty"`
	// prediction for the present kernels of the step, if they are not the measured ones (Changes); 0: they are
	Present float64 `json:"present_seconds,omitempty"`

	flops, bytes float64 // of all launches of the step
}

// Error returns the relative error of the prediction.
func (w Work) Error() float64 { return w.Predicted/w.Measured - 1 }

// Is reports whether a step has the arithmetic and the traffic of w. narrow: weight gradients of its convolutions have
// 16 bits.
func (w Work) Is(flops, bytes float64, narrow bool) bool {
	same := func(a, b float64) bool { return math.Abs(a/b-1) < 1e-3 }
	return same(flops, w.flops) && same(bytes, w.bytes) && narrow == w.Narrow
}

const (
	imageSettings = "--dataset synthetic_image --set model.num_classes=1000 --set data.image_size=224"
	textSettings  = "--dataset synthetic_text --set model.dropout=0"
	resnet        = "--model resnet50 " + imageSettings + " --set data.batch_size=256"
)

// Works lists the measured steps (docs/benchmarks/gpu.md), all in bf16 with SGD and without dropout. A test compares
// Present, or Predicted if Present is 0, with the predictions of this version.
// BERT-base was not used for the efficiencies, but it showed that
// attention needs Kind.Traffic.
var Works = []Work{
	{"ResNet-50, 224x224, batch 256", "resnet50", false, resnet, 50.17e-3, 50.05e-3, true, 0, 0, 6.22056e12, 90.0075e9},
	{"ResNet-50, weight gradients in 16 bits", "resnet50", true, resnet, 43.72e-3, 43.59e-3, true, 0, 0,
		6.22056e12, 90.0075e9},
	{"GPT-2 124M, 8 x 1024", "gpt2", false, "--model gpt2 " + textSettings + " --set data.sequence_length=1024 " +
		"--set data.vocabulary=50257 --set data.num_samples=16 --set data.batch_size=8", 25.35e-3, 25.48e-3, true, 0, 20.00e-3,
		6.53962e12, 19.8588e9},
	{"BERT-base, 64 x 128", "", false, "--model bert_base " + textSettings + " --set data.sequence_length=128 " +
		"--set data.vocabulary=30522 --set data.num_samples=128 --set model.positions=512 --set data.batch_size=64",
		20.57e-3, 19.57e-3, false, 0.137, 15.91e-3, 5.47543e12, 21.7169e9},
}

// CrossCheck is the error of a step's kernels if the efficiencies come from another step alone.
type CrossCheck struct {
	Work  string  `json:"work"`
	From  string  `json:"from"` // the other step
	Error float64 `json:"error"`
}

// CrossChecks show what to expect for models with ops that were not measured: steps of ResNet-50 and GPT-2 share few
// kinds. A test computes them from testdata/h100.tsv.
var CrossChecks = []CrossCheck{{"ResNet-50", "GPT-2", 0.486}, {"GPT-2", "ResNet-50", -0.4}}
