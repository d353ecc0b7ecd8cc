package gpumodel

import (
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Kind describes the launches of a kind of op on the H100.
type Kind struct {
	Name    string  `json:"name"`
	Product bool    `json:"product"`       // the arithmetic consists of products, which use tensor cores
	Fixed   float64 `json:"fixed_seconds"` // time of a launch apart from its limit, s
	// Efficiency is the limit divided by the measured time without Fixed, over all measured launches. It is above 1 for
	// an embedding, which reads only some rows of its table, and for layer_norm, which finds operands in the L2 cache.
	Efficiency float64 `json:"efficiency"`
	// Traffic is the efficiency of memory traffic; 0: Efficiency. If it is set, arithmetic was the bottleneck of all
	// measured launches, and Efficiency is that of the arithmetic.
	Traffic float64 `json:"traffic_efficiency,omitempty"`
}

// launchTime is the fixed time of a kind, s: the time of a kernel without work, 1.8 us, and gapTime. Some kinds have
// other fixed times, which were chosen from the times of single launches. testdata contains only sums over launches, so
// no test checks fixed times. Weight gradients in f32 have the fixed time of those in 16 bits.
const launchTime = 2.5e-6

// gapTime is the time between two kernels of a graph, s: the measured steps minus their kernels, for each kernel.
const gapTime = 0.7e-6

// Names of variants of a kind.
const (
	fewChannels = ", few channels" // the first layer, whose channels fill no 16 bytes
	narrow      = ", 16 bits"      // weight gradients with Options.NarrowGradients
	wide        = ", f32 operands" // weight gradients that need no engines for mixed types
	dropped     = ", dropout"      // attention with dropout
	scalar      = ", scalar"       // attention in f32, or on GPUs below sm_80: its kernels use no tensor cores
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

// Change is a kind whose kernels replaced measured ones, and which no GPU has run. Its coefficients are predictions.
type Change struct {
	Kind
	Replaces []string `json:"replaces"` // measured kinds
	Basis    string   `json:"basis"`    // of the efficiency
}

// Changes lists the kinds that changed since the measurements. After a measurement, they move to Kinds.
var Changes = []Change{
	// Limit: three products. For GPT-2, these take 1.92 ms at the rate of the data sheet. At the efficiency of linear,
	// they take 2.69 ms; the pass over 0.82 GB of logits reads and writes them in 0.74 ms.
	{Kind{"linear_cross_entropy_both", true, launchTime, 0.559, 0},
		[]string{"linear_cross_entropy", "linear_cross_entropy_diff"},
		"products with the efficiency of linear, a pass over the logits with the mean efficiency of other ops"},
	// Two kernels. The first one loads 16 bytes at a time, with 47 KB of loads per multiprocessor.
	{Kind{"bias_gelu_diff", false, 2 * launchTime, otherMoves, 0}, []string{"bias_gelu_diff"},
		"two kernels with the mean efficiency of other ops"},
	// Four kernels. They read two of four large operands twice: 1.5 times the traffic of the limit.
	{Kind{"layer_norm_diff", false, 4 * launchTime, otherMoves / 1.5, 0}, []string{"layer_norm_diff"},
		"four kernels with 1.5 times the traffic and the mean efficiency of other ops"},
}

// sameAs maps kinds that were not measured to similar kinds that were.
var sameAs = map[string]string{
	"attention" + dropped: "attention", "attention_diff" + dropped: "attention_diff",
	"attention" + scalar: "attention", "attention_diff" + scalar: "attention_diff",
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

// Coefficients are the values that predictions use besides data sheets.
type Coefficients struct {
	LaunchSeconds float64 `json:"launch_seconds"` // fixed time of most kinds
	GapSeconds    float64 `json:"gap_seconds"`    // time between two kernels
	OtherProducts float64 `json:"other_products"` // efficiency of products that were not measured
	OtherMoves    float64 `json:"other_moves"`    // efficiency of other ops that were not measured
	Kinds         []Kind  `json:"kinds"`
	// Changes are kinds that no GPU has run, with predicted coefficients.
	Changes []Change `json:"changes"`
}

// Present returns the coefficients of predictions. Those of Changes are predictions, all others were measured on an
// H100.
func Present() Coefficients {
	return Coefficients{launchTime, gapTime, otherProducts, otherMoves, Kinds, Changes}
}

// variant returns the name of the kind of a launch.
func (g GPU) variant(op device.Op, in, out []device.TensorSpec, o Options) string {
	name := op.Kind()
	var weight device.TensorSpec
	groups := 1
	switch op := op.(type) {
	case device.Attention:
		return name + g.attention(op, in[0])
	case device.AttentionDiff:
		return name + g.attention(op.Attention, in[0])
	case device.Conv2D:
		weight, groups = in[1], op.Groups
	case device.Conv2DDiffWeights:
		if in[0].DType.Size() > 2 {
			return name + wide
		}
		if weight, groups = out[0], op.Groups; o.NarrowGradients {
			name += narrow
		}
	default:
		return name
	}
	if int64(weight.Shape[1]*max(groups, 1))*in[0].DType.Size()%16 != 0 {
		return name + fewChannels
	}
	return name
}

// attention returns the suffix of the kind of an attention whose operands have the type of src.
func (g GPU) attention(op device.Attention, src device.TensorSpec) string {
	switch {
	case src.DType.Size() > 2 || g.BF16 == 0: // both tensor cores for bf16 and these kernels need sm_80
		return scalar
	case op.P > 0:
		return dropped
	}
	return ""
}

// kindOf returns the kind of a launch, with the name of the measured kind that it is like. measured is false if no
// launch of the kind itself was measured.
func (g GPU) kindOf(op device.Op, in, out []device.TensorSpec, o Options) (k Kind, name string, measured bool) {
	name = g.variant(op, in, out, o)
	for _, c := range Changes {
		if c.Name == name {
			k = c.Kind
			k.Name = c.Basis
			return k, name, false
		}
	}
	if k, ok := find(name); ok {
		return k, name, true
	}
	if k, ok := find(sameAs[name]); ok {
		k.Product = k.Product && !strings.HasSuffix(name, scalar)
		return k, name, false
	}
	k = Kind{Name: "mean of all other ops", Fixed: launchTime, Efficiency: otherMoves}
	if _, costs := op.(device.Coster); costs && !strings.Contains(name, "norm") {
		k = Kind{Name: "mean of all products", Product: true, Fixed: launchTime, Efficiency: otherProducts}
	}
	return k, name, false
}

func find(name string) (Kind, bool) {
	for _, k := range Kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}
