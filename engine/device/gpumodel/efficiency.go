package gpumodel

import (
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Kind describes the launches of a kind of op on the H100.
type Kind struct {
	Name    string
	Product bool    // the arithmetic consists of products, which use tensor cores
	Fixed   float64 // time of a launch apart from its limit, s
	// Efficiency is the limit divided by the measured time without Fixed, over all measured launches. It is above 1 if
	// the kernels read less than their operands: an embedding reads some rows of its table.
	Efficiency float64
	// Traffic is the efficiency of memory traffic; 0: Efficiency. If it is set, arithmetic was the bottleneck of all
	// measured launches, and Efficiency is that of the arithmetic.
	Traffic float64
}

// launchTime is the fixed time of a kind, s: the time of a kernel without work, 1.8 us, and gapTime. A kind has another
// fixed time if this time lowers the relative error (root mean square) of its single launches by at least a fifth.
// Weight gradients in f32 have the fixed time of those in 16 bits.
const launchTime = 2.5e-6

// gapTime is the time between two kernels of a graph, s: the measured steps minus their kernels, for each kernel.
const gapTime = 0.7e-6

// Names of variants of a kind.
const (
	fewChannels = ", few channels" // the first layer, whose channels fill no 16 bytes
	narrow      = ", 16 bits"      // weight gradients with Options.NarrowGradients
	wide        = ", f32 operands" // weight gradients that need no engines for mixed types
)

// Kinds lists the measured kinds (testdata/h100.tsv; commit b9c845f8, 2026-11-27, one H100 SXM, bf16).
var Kinds = []Kind{
	{"attention", true, launchTime, 0.138, otherMoves},
	{"attention_diff", true, launchTime, 0.0791, otherMoves},
	{"batch_norm_apply", false, launchTime, 0.823, 0},
	{"batch_norm_diff_apply", false, launchTime, 0.741, 0},
	{"batch_norm_diff_reduce", false, 20.9e-6, 0.735, 0},
	{"batch_norm_running", false, launchTime, 0.0101, 0},
	{"batch_norm_stats", false, 8.4e-6, 0.662, 0},
	{"bias_gelu", false, launchTime, 0.855, 0},
	{"bias_gelu_diff", false, launchTime, 0.325, 0},
	{"binary", false, launchTime, 0.932, 0},
	{"conv2d", true, launchTime, 0.792, 0},
	{"conv2d" + fewChannels, true, launchTime, 0.08, 0},
	{"conv2d_diff_src", true, launchTime, 0.753, 0},
	{"conv2d_diff_weights", true, 21.5e-6, 0.648, 0},
	{"conv2d_diff_weights" + narrow, true, 21.5e-6, 0.883, 0},
	{"conv2d_diff_weights" + narrow + fewChannels, true, launchTime, 0.145, 0},
	{"conv2d_diff_weights" + fewChannels, true, launchTime, 0.0245, 0},
	{"embedding", false, launchTime, 2.97, 0},
	{"embedding_diff", false, launchTime, 0.628, 0},
	{"global_avg_pool", false, launchTime, 0.678, 0},
	{"global_avg_pool_diff", false, launchTime, 0.602, 0},
	{"grad_control", false, launchTime, 0.000289, 0},
	{"image_normalize", false, launchTime, 0.869, 0},
	{"layer_norm", false, launchTime, 1.07, 0},
	{"layer_norm_diff", false, launchTime, 0.308, 0},
	{"linear", true, 6.3e-6, 0.711, 0},
	{"linear_cross_entropy", true, launchTime, 0.235, 0},
	{"linear_cross_entropy_diff", true, launchTime, 0.246, 0},
	{"linear_diff_src", true, 4.4e-6, 0.768, 0},
	{"linear_diff_weights", true, 14.7e-6, 0.777, 0},
	{"max_pool2d", false, launchTime, 0.49, 0},
	{"max_pool2d_diff", false, launchTime, 0.207, 0},
	{"reorder", false, launchTime, 0.904, 0},
	{"sgd", false, launchTime, 0.852, 0},
	{"softmax_cross_entropy", false, launchTime, 0.0903, 0},
	{"softmax_cross_entropy_diff", false, launchTime, 0.306, 0},
	{"sum_squares", false, launchTime, 0.591, 0},
}

// sameAs maps kinds that were not measured to similar kinds that were.
var sameAs = map[string]string{
	"adamw": "sgd", "moving_average": "sgd",
	"unary": "binary", "unary_diff": "binary", "scale": "binary", "fill": "binary", "dropout": "binary",
	"broadcast": "binary", "batch_norm_merge": "batch_norm_running",
	"conv2d_diff_weights" + wide: "conv2d_diff_src",
	"avg_pool2d":                 "max_pool2d", "avg_pool2d_diff": "max_pool2d_diff",
	"transpose": "reorder", "reshape": "reorder", "concat": "reorder", "slice": "reorder", "pad": "reorder",
}

// Efficiencies of all other kinds: those of all measured products and of all other measured kinds together.
const (
	otherProducts = 0.486
	otherMoves    = 0.664
)

// variant returns the name of the kind of a launch.
func variant(op device.Op, in, out []device.TensorSpec, o Options) string {
	name := op.Kind()
	var weight device.TensorSpec
	switch op.(type) {
	case device.Conv2D:
		weight = in[1]
	case device.Conv2DDiffWeights:
		if in[0].DType.Size() > 2 {
			return name + wide
		}
		if weight = out[0]; o.NarrowGradients {
			name += narrow
		}
	default:
		return name
	}
	if int64(weight.Shape[1])*in[0].DType.Size()%16 != 0 {
		return name + fewChannels
	}
	return name
}

// kindOf returns the kind of a launch. measured is false if no launch of this kind was measured.
func kindOf(op device.Op, in, out []device.TensorSpec, o Options) (k Kind, measured bool) {
	name := variant(op, in, out, o)
	if k, ok := find(name); ok {
		return k, true
	}
	if k, ok := find(sameAs[name]); ok {
		return k, false
	}
	k = Kind{Name: name, Fixed: launchTime, Efficiency: otherMoves}
	if _, costs := op.(device.Coster); costs && !strings.Contains(name, "norm") {
		k.Product, k.Efficiency = true, otherProducts
	}
	return k, false
}

func find(name string) (Kind, bool) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}
