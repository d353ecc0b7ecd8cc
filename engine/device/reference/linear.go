package reference

import "github.com/hetero-train/hetero-train/engine/device"

func init() {
	add(linear[float32], linear[float64])
	add(linearDiffSrc[float32], linearDiffSrc[float64])
	add(linearDiffWeights[float32], linearDiffWeights[float64])
}

// linear computes dst (N, O) = src (N, I) · weight (O, I)ᵀ + bias (O).
func linear[T real](_ device.Linear, in, out []operand) {
	src, weight := load[T](in[0]), load[T](in[1])
	inputs, outputs := in[1].shape()[1], in[1].shape()[0]
	dst := make([]T, out[0].shape().Elements())
	for n := range in[0].shape()[0] {
		dots(dst[n*outputs:(n+1)*outputs], src[n*inputs:(n+1)*inputs], weight, inputs)
	}
	if len(in) == 3 {
		bias := load[T](in[2])
		for d := range dst {
			dst[d] += bias[d%outputs]
		}
	}
	store(out[0], dst)
}

// linearDiffSrc computes diff_src (N, I) = diff_dst (N, O) · weight (O, I).
func linearDiffSrc[T real](_ device.LinearDiffSrc, in, out []operand) {
	diffDst, weight := load[T](in[0]), load[T](in[1])
	inputs, outputs := in[1].shape()[1], in[1].shape()[0]
	diffSrc := make([]T, out[0].shape().Elements())
	for d, diff := range diffDst {
		n, o := d/outputs, d%outputs
		addProduct(diffSrc[n*inputs:(n+1)*inputs], diff, weight[o*inputs:])
	}
	store(out[0], diffSrc)
}

// linearDiffWeights computes diff_weight (O, I) = diff_dst (N, O)ᵀ · src (N, I); diff_bias (O) = column sums of
// diff_dst.
func linearDiffWeights[T real](op device.LinearDiffWeights, in, out []operand) {
	src, diffDst := load[T](in[0]), load[T](in[1])
	inputs, outputs := in[0].shape()[1], in[1].shape()[1]
	diffWeight := make([]T, outputs*inputs)
	for d, diff := range diffDst {
		n, o := d/outputs, d%outputs
		addProduct(diffWeight[o*inputs:(o+1)*inputs], diff, src[n*inputs:])
	}
	store(out[0], diffWeight)
	if op.Bias {
		diffBias := make([]T, outputs)
		for d, v := range diffDst {
			diffBias[d%outputs] += v
		}
		store(out[1], diffBias)
	}
}
