package devicetest

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// oneNaN generates random values with a single NaN.
func oneNaN(seed, i uint64) float64 {
	if i == 1 {
		return math.NaN()
	}
	return symmetric(seed, i)
}

// nanCases returns cases with a NaN in an operand. The NaN must reach every output that depends on it, so that the
// engine detects a diverged run. No maximum, ReLU or mask may turn it into a number.
func nanCases() []valueCase {
	window := device.Window{Stride: [2]int{1, 1}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}
	images := floats(oneNaN, 2, 17, 4, 5)
	clean := floats(symmetric, 2, 17, 4, 5)
	norm := []input{params(symmetric, 1, 17), params(Uniform(0.5, 1), 1, 17), params(symmetric, 17),
		params(symmetric, 17)}
	apply := func(add bool) device.BatchNormApply { return device.BatchNormApply{Eps: normEps, ReLU: true, Add: add} }
	first := func(op device.Op) func(*Runner, []Operand) []Operand {
		return func(r *Runner, in []Operand) []Operand { return r.Do(op, in...)[:1] }
	}
	cases := []valueCase{
		{name: "conv2d", inputs: []input{images, floats(symmetric, 3, 17, 3, 3)},
			run: one(device.Conv2D{Window: window, Groups: 1})},
		{name: "conv2d diff_weights", inputs: []input{images, floats(symmetric, 2, 3, 4, 5)},
			run: one(device.Conv2DDiffWeights{Conv2D: device.Conv2D{Window: window, Groups: 1}, Kernel: [2]int{3, 3}})},
		{name: "linear", inputs: []input{floats(oneNaN, 3, 5), floats(symmetric, 7, 5)}, run: one(device.Linear{})},
		{name: "batch_norm stats", inputs: []input{images}, run: one(device.BatchNormStats{})},
		{name: "batch_norm apply with relu", inputs: append([]input{images}, norm...), run: one(apply(false))},
		{name: "batch_norm apply with relu and a residual", inputs: append(append([]input{clean}, norm...), images),
			run: first(apply(true))},
		// Only running statistics ignore a NaN: a step with a NaN is skipped and must not change them.
		{name: "batch_norm running", inputs: []input{params(symmetric, 17), params(Uniform(0.5, 1), 17),
			params(oneNaN, 2, 17), params(Uniform(0.5, 1), 2, 17)},
			run: one(device.BatchNormRunning{Momentum: 0.1, Counts: []int64{20, 20}})},
		{name: "max_pool2d", inputs: []input{images}, run: one(device.MaxPool2D{Window: window, Kernel: [2]int{3, 3}})},
		{name: "max_pool2d in training", inputs: []input{images},
			run: first(device.MaxPool2D{Window: window, Kernel: [2]int{3, 3}, Train: true})},
		{name: "global_avg_pool", inputs: []input{images}, run: one(device.GlobalAvgPool{})},
		{name: "relu", inputs: []input{images}, run: one(device.Unary{Func: device.ReLU})},
		{name: "sum", inputs: []input{images}, run: one(device.Reduce{Func: device.Sum, Axes: []int{0, 2, 3}})},
		{name: "max over images", inputs: []input{images},
			run: one(device.Reduce{Func: device.Maximum, Axes: []int{0, 2, 3}})},
		{name: "max", inputs: []input{images, clean}, run: one(device.Binary{Func: device.Max})},
		{name: "max, the other operand", inputs: []input{clean, images}, run: one(device.Binary{Func: device.Max})},
		{name: "min", inputs: []input{images, clean}, run: one(device.Binary{Func: device.Min})},
		{name: "min, the other operand", inputs: []input{clean, images}, run: one(device.Binary{Func: device.Min})},
		{name: "loss", inputs: []input{floats(oneNaN, 4, 7), fixedType(tensor.I32, Integers(0, 6), 4)},
			run: first(device.SoftmaxCrossEntropy{})},
		{name: "sum_squares", inputs: []input{params(oneNaN, 100)}, run: one(device.SumSquares{Chunk: 32})},
	}
	for i := range cases {
		cases[i].tolerance, cases[i].nan = functions, true
	}
	return cases
}
