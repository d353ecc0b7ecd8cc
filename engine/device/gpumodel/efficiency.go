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
}

// launchTime is the fixed time of a kind, s: the time of a kernel without work, 1.8 us, and the gap to the next kernel
// of a graph, 0.7 us. Kinds whose sums need a second kernel, and kinds with launches of very different sizes, have a
// longer fixed time, which minimizes the relative error of the single launches.
const launchTime = 2.5e-6

// Names of variants of a kind.
const (
	fewChannels = ", few channels" // the first layer, whose channels fill no 16 bytes
	narrow      = ", 16 bits"      // weight gradients with Options.NarrowGradients
)

// Kinds lists the measured kinds (testdata/h100.tsv; commit b9c845f8, 2026-11-27, one H100 SXM, bf16).
var Kinds = []Kind{
	{"attention", true, launchTime, 0.161},
	{"attention_diff", true, launchTime, 0.0916},
	{"batch_norm_apply", false, launchTime, 0.823},
	{"batch_norm_diff_apply", false, launchTime, 0.741},
	{"batch_norm_diff_reduce", false, 20.9e-6, 0.735},
	{"batch_norm_running", false, launchTime, 0.0101},
	{"batch_norm_stats", false, 8.4e-6, 0.662},
	{"bias_gelu", false, launchTime, 0.855},
	{"bias_gelu_diff", false, launchTime, 0.325},
	{"binary", false, launchTime, 0.932},
	{"conv2d", true, launchTime, 0.792},
	{"conv2d" + fewChannels, true, launchTime, 0.08},
	{"conv2d_diff_src", true, launchTime, 0.753},
	{"conv2d_diff_weights", true, launchTime, 0.304},
	{"conv2d_diff_weights" + narrow, true, 21.5e-6, 0.883},
	{"conv2d_diff_weights" + narrow + fewChannels, true, launchTime, 0.145},
	{"embedding", false, launchTime, 2.97},
	{"embedding_diff", false, launchTime, 0.628},
	{"global_avg_pool", false, launchTime, 0.678},
	{"global_avg_pool_diff", false, launchTime, 0.602},
	{"grad_control", false, launchTime, 0.000289},
	{"image_normalize", false, launchTime, 0.869},
	{"layer_norm", false, launchTime, 1.07},
	{"layer_norm_diff", false, launchTime, 0.308},
	{"linear", true, 6.3e-6, 0.711},
	{"linear_cross_entropy", true, launchTime, 0.235},
	{"linear_cross_entropy_diff", true, launchTime, 0.246},
	{"linear_diff_src", true, 4.4e-6, 0.768},
	{"linear_diff_weights", true, 14.7e-6, 0.777},
	{"max_pool2d", false, launchTime, 0.49},
	{"max_pool2d_diff", false, launchTime, 0.207},
	{"reorder", false, launchTime, 0.904},
	{"sgd", false, launchTime, 0.852},
	{"softmax_cross_entropy", false, launchTime, 0.0903},
	{"softmax_cross_entropy_diff", false, launchTime, 0.306},
	{"sum_squares", false, launchTime, 0.591},
}

// sameAs maps kinds that were not measured to similar kinds that were.
var sameAs = map[string]string{
	"adamw": "sgd", "moving_average": "sgd",
	"unary": "binary", "unary_diff": "binary", "scale": "binary", "fill": "binary", "dropout": "binary",
	"broadcast": "binary", "batch_norm_merge": "batch_norm_running",
	"avg_pool2d": "max_pool2d", "avg_pool2d_diff": "max_pool2d_diff",
	"transpose": "reorder", "reshape": "reorder", "concat": "reorder", "slice": "reorder", "pad": "reorder",
}

// Efficiencies of all other kinds: the totals of the limits and of the times of the measured kinds.
const (
	otherProducts = 0.488
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
		if weight = out[0]; !o.NarrowGradients || in[0].DType.Size() > 2 {
			return name
		}
		name += narrow
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
