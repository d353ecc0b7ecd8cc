package gpumodel

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
	Measured  float64 `json:"measured_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	Fitted    bool    `json:"fitted"` // the efficiencies were derived from this step
}

// Error returns the relative error of the prediction.
func (w Work) Error() float64 { return w.Predicted/w.Measured - 1 }

// Works lists the measured steps (docs/benchmarks/gpu.md), all in bf16 with SGD and without dropout. A test compares
// Predicted with the predictions of this version. BERT-base was not used for the efficiencies, but it showed that
// attention needs Kind.Traffic: without this field, its error was +13.7 %.
var Works = []Work{
	{"ResNet-50 224x224, batch 256", 50.17e-3, 50.05e-3, true},
	{"the same, weight gradients in 16 bits", 43.72e-3, 43.59e-3, true},
	{"GPT-2 124M, 8 x 1024", 25.35e-3, 25.48e-3, true},
	{"BERT-base, 64 x 128", 20.57e-3, 19.57e-3, false},
}
