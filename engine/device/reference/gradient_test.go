package reference_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

type tensors = []devicetest.Tensor

// exec runs one op. The types of the operands are f64.
type exec func(op device.Op, in ...devicetest.Tensor) tensors

// gradientCase is a function with its gradient. backward gets the inputs, and the gradients of the outputs. It returns
// the gradients of the first inputs.
type gradientCase struct {
	name     string
	inputs   tensors
	forward  func(do exec, in tensors) tensors
	backward func(do exec, in, diff tensors) tensors
	// weight is the gradient of every output element. 0 means random gradients.
	weight float64
}

const (
	step = 1e-5 // step of the central difference; the error is of the order step² = 1e-10
	// gradientTolerance is relative to the largest gradient of a tensor. It exceeds two errors of the difference: step²
	// times a third derivative, and the f64 rounding error divided by step, 1e-11.
	gradientTolerance = 1e-8
)

func TestGradientsAreTheDerivatives(t *testing.T) {
	for _, table := range [][]gradientCase{productGradients(), normGradients(), poolGradients(), elementGradients(),
		moveGradients(), lossGradients()} {
		for _, c := range table {
			t.Run(c.name, c.check)
		}
	}
}

func (c gradientCase) check(t *testing.T) {
	dev := reference.New()
	do := func(op device.Op, in ...devicetest.Tensor) tensors { return devicetest.Exec(t, dev, op, in) }
	diff := c.forward(do, c.inputs)
	for i, o := range diff {
		gen := devicetest.Uniform(-1, 1)
		if c.weight != 0 {
			gen = func(uint64, uint64) float64 { return c.weight }
		}
		diff[i] = devicetest.Random(tensor.F64, o.Spec.Shape, uint64(100+i), gen)
	}
	objective := func() float64 {
		sum := 0.0
		for i, o := range c.forward(do, c.inputs) {
			for j, v := range o.Values {
				sum += v * diff[i].Values[j]
			}
		}
		return sum
	}
	for i, got := range c.backward(do, c.inputs, diff) {
		x := c.inputs[i]
		if !got.Spec.Shape.Equal(x.Spec.Shape) {
			t.Fatalf("gradient %d: got shape %v, want %v", i, got.Spec.Shape, x.Spec.Shape)
		}
		largest := 0.0
		want := make([]float64, len(x.Values))
		for j, v := range x.Values {
			x.Values[j] = v + step
			above := objective()
			x.Values[j] = v - step
			want[j] = (above - objective()) / (2 * step)
			x.Values[j] = v
			largest = max(largest, math.Abs(want[j]))
		}
		if largest == 0 {
			t.Fatalf("gradient %d is 0 everywhere: nothing is tested", i)
		}
		for j, w := range want {
			if d := math.Abs(got.Values[j] - w); !(d <= gradientTolerance*largest) {
				t.Errorf("gradient %d, element %d: got %.12g, want %.12g", i, j, got.Values[j], w)
			}
		}
	}
}

// random returns random f64 values. The inputs of one case have different seeds.
func random(seed uint64, shape ...int) devicetest.Tensor {
	return devicetest.Random(tensor.F64, shape, seed, devicetest.Uniform(-1, 1))
}

func between(low, high float64, seed uint64, shape ...int) devicetest.Tensor {
	return devicetest.Random(tensor.F64, shape, seed, devicetest.Uniform(low, high))
}

func productGradients() []gradientCase {
	one := [2]int{1, 1}
	var cases []gradientCase
	for _, c := range []struct {
		name             string
		op               device.Conv2D
		n, ch, h, w, out int
		kernel           [2]int
	}{
		{"3x3 padded", device.Conv2D{Groups: 1, Window: device.Window{Stride: one, Padding: one, Dilation: one}}, 2, 3,
			4, 5, 2, [2]int{3, 3}},
		{"1x1 with stride", device.Conv2D{Groups: 1, Window: device.Window{Stride: [2]int{2, 3}, Dilation: one}}, 1, 2,
			5, 4, 3, one},
		{
			"dilated, uneven",
			device.Conv2D{Groups: 1, Window: device.Window{Stride: [2]int{2, 1}, Padding: [2]int{1, 2},
				Dilation: [2]int{2, 3}}}, 1, 2, 7, 6, 2, [2]int{3, 2}},
		{"groups", device.Conv2D{Groups: 2, Window: device.Window{Stride: one, Dilation: one}}, 2, 4, 3, 3, 6,
			[2]int{2, 2}},
		{"depthwise", device.Conv2D{Groups: 3, Window: device.Window{Stride: one, Padding: one, Dilation: one}}, 1, 3,
			4, 4, 3, [2]int{3, 3}},
	} {
		cases = append(cases, gradientCase{
			name: "conv2d " + c.name,
			inputs: tensors{random(1, c.n, c.ch, c.h, c.w),
				random(2, c.out, c.ch/c.op.Groups, c.kernel[0], c.kernel[1]), random(3, c.out)},
			forward: func(do exec, in tensors) tensors { return do(c.op, in...) },
			backward: func(do exec, in, diff tensors) tensors {
				src := do(device.Conv2DDiffSrc{Conv2D: c.op, Height: c.h, Width: c.w}, diff[0], in[1])
				return append(src, do(device.Conv2DDiffWeights{Conv2D: c.op, Kernel: c.kernel, Bias: true}, in[0],
					diff[0])...)
			},
		})
	}
	return append(cases, gradientCase{
		name:    "linear",
		inputs:  tensors{random(1, 3, 5), random(2, 4, 5), random(3, 4)},
		forward: func(do exec, in tensors) tensors { return do(device.Linear{}, in...) },
		backward: func(do exec, in, diff tensors) tensors {
			src := do(device.LinearDiffSrc{}, diff[0], in[1])
			return append(src, do(device.LinearDiffWeights{Bias: true}, in[0], diff[0])...)
		},
	})
}

// normGradients returns cases of a whole layer, whose statistics depend on x.
//
//	inputs x (N, C, H, W); gamma (C); beta (C); [residual (N, C, H, W)]
func normGradients() []gradientCase {
	const eps = 1e-3
	var cases []gradientCase
	for _, group := range []int{0, 2} { // in groups of 2, the 5 samples form groups of 2, 2 and 1
		for _, relu := range []bool{false, true} {
			for _, add := range []bool{false, true} {
				for _, two := range []bool{false, true} {
					c := gradientCase{
						name:   fmt.Sprintf("batch_norm group %d relu %t add %t two %t", group, relu, add, two),
						inputs: tensors{random(1, 5, 2, 3, 2), between(0.5, 1.5, 2, 2), random(3, 2)}}
					if add {
						c.inputs = append(c.inputs, random(4, 5, 2, 3, 2))
					}
					apply := device.BatchNormApply{Group: group, Eps: eps, ReLU: relu, Add: add}
					run := func(do exec, in tensors) (common, out tensors) {
						stats := do(device.BatchNormStats{Group: group}, in[0])
						common = tensors{in[0], stats[0], stats[1], in[1], in[2]}
						return common, do(apply, append(common[:5:5], in[3:]...)...)
					}
					c.forward = func(do exec, in tensors) tensors {
						_, out := run(do, in)
						if two { // two ops read y
							return tensors{out[0], out[0]}
						}
						return out[:1]
					}
					c.backward = func(do exec, in, diff tensors) tensors {
						common, out := run(do, in)
						operands := append(common[:5:5], diff...)
						if relu && add {
							operands = append(operands, out[1])
						}
						sums := do(device.BatchNormDiffReduce{Group: group, Eps: eps, ReLU: relu, Add: add, Two: two},
							operands...)
						dz, masked := diff[0], false
						if add || two {
							dz, masked = sums[2], true
						}
						x := do(device.BatchNormDiffApply{Group: group, Eps: eps, ReLU: relu && !masked},
							append(common[:5:5], dz, sums[0], sums[1])...)
						overGroups := device.Reduce{Func: device.Sum, Axes: []int{0}}
						grads := tensors{x[0], do(overGroups, sums[0])[0], do(overGroups, sums[1])[0]}
						if add {
							grads = append(grads, dz)
						}
						return grads
					}
					cases = append(cases, c)
				}
			}
		}
	}
	return cases
}

func poolGradients() []gradientCase {
	window := device.Window{Stride: [2]int{2, 1}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}
	kernel := [2]int{3, 2}
	maxPool := device.MaxPool2D{Window: window, Kernel: kernel, Train: true}
	cases := []gradientCase{
		{name: "max_pool2d", inputs: tensors{random(1, 2, 2, 5, 4)},
			forward: func(do exec, in tensors) tensors { return do(maxPool, in...)[:1] },
			backward: func(do exec, in, diff tensors) tensors {
				return do(device.MaxPool2DDiff{MaxPool2D: maxPool, Height: 5, Width: 4}, diff[0], do(maxPool, in...)[1])
			}},
		{name: "global_avg_pool", inputs: tensors{random(1, 2, 3, 4, 2)},
			forward: func(do exec, in tensors) tensors { return do(device.GlobalAvgPool{}, in...) },
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.GlobalAvgPoolDiff{Height: 4, Width: 2}, diff...)
			}},
	}
	for _, padding := range []bool{false, true} {
		op := device.AvgPool2D{Window: window, Kernel: kernel, CountPadding: padding}
		cases = append(cases, gradientCase{name: fmt.Sprintf("avg_pool2d padding counts %t", padding),
			inputs:  tensors{random(1, 2, 2, 5, 4)},
			forward: func(do exec, in tensors) tensors { return do(op, in...) },
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.AvgPool2DDiff{AvgPool2D: op, Height: 5, Width: 4}, diff...)
			}})
	}
	return cases
}

func elementGradients() []gradientCase {
	var cases []gradientCase
	for f := device.ReLU; f <= device.Abs; f++ {
		x := random(1, 3, 7)
		if f == device.Log || f == device.Sqrt {
			x = between(0.5, 2, 1, 3, 7)
		}
		cases = append(cases, gradientCase{name: f.String(), inputs: tensors{x},
			forward:  func(do exec, in tensors) tensors { return do(device.Unary{Func: f}, in...) },
			backward: func(do exec, in, diff tensors) tensors { return do(device.UnaryDiff{Func: f}, diff[0], in[0]) }})
	}
	cases = append(cases, gradientCase{name: "relu by its result", inputs: tensors{random(1, 3, 7)},
		forward: func(do exec, in tensors) tensors { return do(device.Unary{Func: device.ReLU}, in...) },
		backward: func(do exec, in, diff tensors) tensors {
			return do(device.UnaryDiff{Func: device.ReLU}, diff[0], do(device.Unary{Func: device.ReLU}, in...)[0])
		}})
	ids := devicetest.Of(tensor.I64, tensor.Shape{3}, 5, 1<<40, 7)
	key := devicetest.Of(tensor.U32, tensor.Shape{2}, 11, 13)
	drop := device.Dropout{P: 0.4, Stream: 2}
	cases = append(cases, gradientCase{name: "dropout is its own gradient", inputs: tensors{random(1, 3, 9)},
		forward:  func(do exec, in tensors) tensors { return do(drop, in[0], ids, key) },
		backward: func(do exec, _, diff tensors) tensors { return do(drop, diff[0], ids, key) }})
	factor := devicetest.Of(tensor.F64, tensor.Shape{1}, 0.3)
	return append(cases, gradientCase{name: "scale is its own gradient", inputs: tensors{random(1, 5)},
		forward:  func(do exec, in tensors) tensors { return do(device.Scale{}, in[0], factor) },
		backward: func(do exec, _, diff tensors) tensors { return do(device.Scale{}, diff[0], factor) }})
}

func moveGradients() []gradientCase {
	return []gradientCase{
		{name: "concat by slices", inputs: tensors{random(1, 2, 3, 2), random(2, 2, 1, 2)},
			forward: func(do exec, in tensors) tensors { return do(device.Concat{Axis: 1}, in...) },
			backward: func(do exec, _, diff tensors) tensors {
				return append(do(device.Slice{Axis: 1, Start: 0, Size: 3}, diff[0]),
					do(device.Slice{Axis: 1, Start: 3, Size: 1}, diff[0])...)
			}},
		{name: "slice by padding", inputs: tensors{random(1, 2, 5)},
			forward: func(do exec, in tensors) tensors { return do(device.Slice{Axis: 1, Start: 1, Size: 3}, in...) },
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.Pad{Axis: 1, Start: 1, Size: 5}, diff...)
			}},
		{name: "transpose by its inverse", inputs: tensors{random(1, 2, 3, 4)},
			forward: func(do exec, in tensors) tensors { return do(device.Transpose{Perm: []int{2, 0, 1}}, in...) },
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.Transpose{Perm: []int{1, 2, 0}}, diff...)
			}},
		{name: "sum by broadcast", inputs: tensors{random(1, 2, 3, 4)},
			forward: func(do exec, in tensors) tensors {
				return do(device.Reduce{Func: device.Sum, Axes: []int{0, 2}}, in...)
			},
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.Broadcast{Shape: tensor.Shape{2, 3, 4}, Axes: []int{0, 2}}, diff...)
			}},
		{name: "broadcast by sum", inputs: tensors{random(1, 3)},
			forward: func(do exec, in tensors) tensors {
				return do(device.Broadcast{Shape: tensor.Shape{2, 3, 4}, Axes: []int{0, 2}}, in...)
			},
			backward: func(do exec, _, diff tensors) tensors {
				return do(device.Reduce{Func: device.Sum, Axes: []int{0, 2}}, diff...)
			}},
	}
}

func lossGradients() []gradientCase {
	const scale = 0.37
	labels := devicetest.Of(tensor.I32, tensor.Shape{4}, 2, -1, 0, 4)
	var cases []gradientCase
	second, lambda := devicetest.Of(tensor.I32, tensor.Shape{4}, 3, 1, 0, 1),
		devicetest.Of(tensor.F64, tensor.Shape{4}, 0.7, 0.5, 0.2, 0.4)
	for _, smoothing := range []float64{0, 0.1} {
		mixed := device.SoftmaxCrossEntropy{LabelSmoothing: smoothing, Mixed: true}
		cases = append(cases, gradientCase{
			name: fmt.Sprintf("softmax_cross_entropy of mixed samples, smoothing %g", smoothing), weight: scale,
			inputs:  tensors{between(-3, 3, 1, 4, 5)},
			forward: func(do exec, in tensors) tensors { return do(mixed, in[0], labels, second, lambda)[:1] },
			backward: func(do exec, in, diff tensors) tensors {
				lse := do(mixed, in[0], labels, second, lambda)[2]
				factor := devicetest.Of(tensor.F64, tensor.Shape{1}, diff[0].Values[0])
				return do(device.SoftmaxCrossEntropyDiff{LabelSmoothing: smoothing, Mixed: true}, in[0], labels, lse,
					factor, second, lambda)
			}})
		cases = append(cases, gradientCase{name: fmt.Sprintf("softmax_cross_entropy smoothing %g", smoothing),
			weight: scale,
			inputs: tensors{between(-3, 3, 1, 4, 5)},
			forward: func(do exec, in tensors) tensors {
				return do(device.SoftmaxCrossEntropy{LabelSmoothing: smoothing}, in[0], labels)[:1]
			},
			backward: func(do exec, in, diff tensors) tensors {
				lse := do(device.SoftmaxCrossEntropy{LabelSmoothing: smoothing}, in[0], labels)[2]
				factor := devicetest.Of(tensor.F64, tensor.Shape{1}, diff[0].Values[0])
				return do(device.SoftmaxCrossEntropyDiff{LabelSmoothing: smoothing}, in[0], labels, lse, factor)
			}})
	}
	return cases
}
