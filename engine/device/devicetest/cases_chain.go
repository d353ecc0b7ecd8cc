package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// chainCases returns cases that run several ops in sequence. Tensors between the ops have the layouts that the device
// chooses, as in a plan.
func chainCases() []valueCase {
	var cases []valueCase
	for _, c := range [][3]int{{3, 17, 35}, {16, 32, 16}, {5, 3, 3}} {
		cases = append(cases, residualChain(c[0], c[1], c[2]), classifierChain(c[0], c[1], c[2]))
	}
	return cases
}

var convolved = tolerance{floor: 8, reason: "four units in the last place, one for each layer of the chain"}

// residualChain runs a convolution, a BatchNorm with addition and ReLU, and a convolution; then it computes all their
// gradients.
func residualChain(c, mid, o int) valueCase {
	conv := device.Conv2D{
		Groups: 1, Window: device.Window{Stride: [2]int{1, 1}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}}
	const n, h, w = 2, 6, 5
	return valueCase{
		name: fmt.Sprintf("residual c%d mid%d o%d", c, mid, o), chain: true, tolerance: convolved,
		types: []tensor.DType{tensor.F32, tensor.F64, tensor.BF16},
		inputs: []input{
			floats(symmetric, n, c, h, w), floats(symmetric, mid, c, 3, 3), params(Uniform(0.5, 1.5), mid),
			params(Uniform(0.1, 0.3), mid),
			floats(symmetric, n, mid, h, w), floats(symmetric, o, mid, 3, 3), floats(symmetric, n, o, h, w),
			params(symmetric, 1, mid), params(Uniform(3, 4), 1, mid),
		},
		run: func(r *Runner, in []Operand) []Operand {
			src, w1, gamma, beta, residual, w2, diff := in[0], in[1], in[2], in[3], in[4], in[5], in[6]
			x := r.Do(conv, src, w1)[0]
			common := []Operand{x, in[7], in[8], gamma, beta}
			y := r.Do(device.BatchNormApply{Eps: normEps, ReLU: true, Add: true}, append(common[:5:5], residual)...)
			dst := r.Do(conv, y[0], w2)[0]
			diffY := r.Do(device.Conv2DDiffSrc{Conv2D: conv, Height: h, Width: w}, diff, w2)[0]
			diffW2 := r.Do(device.Conv2DDiffWeights{Conv2D: conv, Kernel: [2]int{3, 3}}, y[0], diff)[0]
			sums := r.Do(device.BatchNormDiffReduce{Eps: normEps, ReLU: true, Add: true},
				append(common[:5:5], diffY, y[1])...)
			diffX := r.Do(device.BatchNormDiffApply{Eps: normEps},
				append(common[:5:5], sums[2], sums[0], sums[1])...)[0]
			diffW1 := r.Do(device.Conv2DDiffWeights{Conv2D: conv, Kernel: [2]int{3, 3}}, src, diffX)[0]
			return []Operand{dst, diffW2, sums[0], sums[1], diffW1}
		},
	}
}

// classifierChain runs a convolution, max pooling, global mean, linear layer and loss; then it computes all their
// gradients. The gradient enters the pooling in the layout that another op produced.
func classifierChain(c, mid, classes int) valueCase {
	conv := device.Conv2D{
		Groups: 1, Window: device.Window{Stride: [2]int{2, 2}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}}
	pool := device.MaxPool2D{Window: conv.Window, Kernel: [2]int{3, 3}, Train: true}
	const n, h, w = 3, 11, 9 // 6 x 5 after the convolution, 3 x 3 after the pooling
	return valueCase{
		name: fmt.Sprintf("classifier c%d mid%d classes %d", c, mid, classes), chain: true, tolerance: convolved,
		types: []tensor.DType{tensor.F32, tensor.F64},
		inputs: []input{
			floats(symmetric, n, c, h, w), floats(symmetric, mid, c, 3, 3), params(symmetric, mid),
			floats(symmetric, classes, mid), params(symmetric, classes),
			fixedType(tensor.I32, Integers(0, classes-1), n), params(listed(1.0/n), 1),
		},
		run: func(r *Runner, in []Operand) []Operand {
			src, w1, b1, w2, b2, labels, scale := in[0], in[1], in[2], in[3], in[4], in[5], in[6]
			x := r.Do(conv, src, w1, b1)[0]
			pooled := r.Do(pool, x)
			features := r.Do(device.GlobalAvgPool{}, pooled[0])[0]
			logits := r.Do(device.Linear{To: r.Param}, features, w2, b2)[0]
			loss := r.Do(device.SoftmaxCrossEntropy{}, logits, labels)
			diff := r.Do(device.SoftmaxCrossEntropyDiff{}, logits, labels, loss[2], scale)[0]
			diffW2 := r.Do(device.LinearDiffWeights{Bias: true}, features, diff)
			diffFeatures := r.Do(device.LinearDiffSrc{}, diff, w2)[0]
			diffPooled := r.Do(device.GlobalAvgPoolDiff{Height: 3, Width: 3}, diffFeatures)[0]
			diffX := r.Do(device.MaxPool2DDiff{MaxPool2D: pool, Height: 6, Width: 5}, diffPooled, pooled[1])[0]
			diffW1 := r.Do(device.Conv2DDiffWeights{Conv2D: conv, Kernel: [2]int{3, 3}, Bias: true}, src, diffX)
			return []Operand{loss[0], loss[1], diffW2[0], diffW2[1], diffW1[0], diffW1[1]}
		},
	}
}
