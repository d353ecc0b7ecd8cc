package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// poolShape describes windows over (n, c, h, w) images. If the field dilated is zero, the dilation is 1.
type poolShape struct {
	n, c, h, w                       int
	kernel, stride, padding, dilated [2]int
}

var poolShapes = []poolShape{
	{n: 1, c: 1, h: 1, w: 1, kernel: [2]int{1, 1}, stride: [2]int{1, 1}},
	{n: 2, c: 3, h: 7, w: 9, kernel: [2]int{3, 3}, stride: [2]int{2, 2}, padding: [2]int{1, 1}},
	{n: 3, c: 17, h: 8, w: 6, kernel: [2]int{2, 2}, stride: [2]int{2, 2}},
	{n: 1, c: 35, h: 5, w: 5, kernel: [2]int{3, 3}, stride: [2]int{1, 1}, padding: [2]int{1, 1}},
	{n: 2, c: 16, h: 7, w: 7, kernel: [2]int{3, 3}, stride: [2]int{2, 2}}, // the last column is in no window
	{n: 2, c: 64, h: 4, w: 5, kernel: [2]int{3, 2}, stride: [2]int{2, 3}, padding: [2]int{1, 0}},
	{n: 1, c: 5, h: 9, w: 8, kernel: [2]int{3, 3}, stride: [2]int{1, 2}, padding: [2]int{1, 1}, dilated: [2]int{2, 2}},
	{n: 5, c: 4, h: 6, w: 6, kernel: [2]int{6, 6}, stride: [2]int{1, 1}},
	{n: 1, c: 3, h: 6, w: 7, kernel: [2]int{1, 1}, stride: [2]int{2, 2}},
}

func (s poolShape) window() device.Window {
	return device.Window{Stride: s.stride, Padding: s.padding, Dilation: atLeastOne(s.dilated)}
}

func (s poolShape) out(d, in int) int {
	w := s.window()
	return (in+2*w.Padding[d]-w.Dilation[d]*(s.kernel[d]-1)-1)/w.Stride[d] + 1
}

func (s poolShape) String() string {
	w := s.window()
	return fmt.Sprintf("n%d c%d %dx%d k%dx%d s%dx%d p%dx%d d%dx%d", s.n, s.c, s.h, s.w, s.kernel[0], s.kernel[1],
		w.Stride[0], w.Stride[1], w.Padding[0], w.Padding[1], w.Dilation[0], w.Dilation[1])
}

func poolCases() []valueCase {
	var cases []valueCase
	for _, s := range poolShapes {
		diff := floats(symmetric, s.n, s.c, s.out(0, s.h), s.out(1, s.w))
		images := func(gen Generator) input { return floats(gen, s.n, s.c, s.h, s.w) }
		cases = append(cases, maxPoolCases(s, diff, images)...)
		if s.dilated[0] > 1 {
			continue // no model uses averages of dilated windows
		}
		for _, padding := range []bool{false, true} {
			op := device.AvgPool2D{Window: s.window(), Kernel: s.kernel, CountPadding: padding}
			back := device.AvgPool2DDiff{AvgPool2D: op, Height: s.h, Width: s.w}
			name := fmt.Sprintf(" %v padding counts %t", s, padding)
			cases = append(cases,
				valueCase{name: "avg" + name, inputs: []input{images(symmetric)}, run: one(op), tolerance: sums},
				valueCase{name: "avg diff" + name, inputs: []input{diff}, run: one(back), tolerance: sums})
		}
	}
	for _, s := range [][4]int{{1, 1, 1, 1}, {2, 3, 5, 7}, {3, 17, 1, 1}, {1, 35, 7, 7}, {5, 64, 2, 3}} {
		name := fmt.Sprintf(" n%d c%d %dx%d", s[0], s[1], s[2], s[3])
		back := device.GlobalAvgPoolDiff{Height: s[2], Width: s[3]}
		cases = append(cases,
			valueCase{name: "global avg" + name, inputs: []input{floats(symmetric, s[:]...)},
				run: one(device.GlobalAvgPool{}), tolerance: sums},
			valueCase{name: "global avg diff" + name, inputs: []input{floats(symmetric, s[0], s[1])}, run: one(back),
				tolerance: sums})
	}
	return cases
}

// maxPoolCases returns cases with few different values, so that windows contain equal values. In some cases, all inputs
// are negative, so that a padding of zeros would wrongly be the maximum.
func maxPoolCases(s poolShape, diff input, images func(Generator) input) []valueCase {
	train := device.MaxPool2D{Window: s.window(), Kernel: s.kernel, Train: true}
	predict := train
	predict.Train = false
	back := device.MaxPool2DDiff{MaxPool2D: train, Height: s.h, Width: s.w}
	return []valueCase{
		{name: "max " + s.String(), inputs: []input{images(Uniform(-2, -1))}, run: one(predict), tolerance: exact},
		{name: "max in training " + s.String(), inputs: []input{images(Uniform(-2, -1))}, run: one(train),
			tolerance: exact},
		{name: "max diff " + s.String(), inputs: []input{images(symmetric), diff}, run: poolBackAndForth(train, back),
			tolerance: sums},
		{name: "max diff of equal pixels " + s.String(), inputs: []input{images(Integers(-3, -1)), diff},
			run: poolBackAndForth(train, back), tolerance: sums},
	}
}

// poolBackAndForth runs the forward op, then the backward op with its argmax.
func poolBackAndForth(forward device.MaxPool2D, back device.MaxPool2DDiff) func(*Runner, []Operand) []Operand {
	return func(r *Runner, in []Operand) []Operand {
		dst := r.Do(forward, in[0])
		return append(r.Do(back, in[1], dst[1]), dst[0])
	}
}
