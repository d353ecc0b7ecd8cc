// Package gpumodel predicts the times of ops on GPUs from data sheets, and opens devices that compile for such a GPU on
// machines without it.
//
//	gpu, err := gpumodel.Find("h100")
//	dev, err := gpumodel.Open(gpu)          // compiles like package cuda, computes nothing
//	t, err := gpu.Predict(op, in, out, gpumodel.Options{})
//	t.Seconds; t.LimitSeconds               // predicted time, and that at the rates of the data sheet
//
// # Prediction
//
// The limit of a launch is the longer of two times at the rates of the data sheet: its arithmetic and its memory
// traffic. FLOPs and bytes are those of package device. The prediction is
//
//	fixed time of the op's kind + limit / efficiency of the op's kind
//
// The fixed times and efficiencies were measured on one H100 in bf16. For other GPUs and types they are assumptions,
// which no measurement supports. Those of kernels that changed after the measurements are predictions ([Changes]).
// [Works] lists what was measured, and how far the predictions are from it.
//
// # Device
//
// A Device reports the memory, the types and the compute capability of its GPU. Its layouts are plain. Sizes of tensors
// and of saved state are those of package cuda. Workspaces of the loss over a vocabulary and of attention are, too.
// Those of products and convolutions are unknown, because libraries on the GPU choose them. ReservedBytes stands for
// the unknown ones.
package gpumodel
