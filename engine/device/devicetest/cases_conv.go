package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// convShape is one convolution: (n, c, h, w) images, o output channels.
type convShape struct {
	n, c, h, w, o                    int
	kernel, stride, padding, dilated [2]int
	groups                           int
}

// In this table, a stride, dilation or groups of zero means 1.
var convShapes = []convShape{
	{n: 1, c: 1, h: 1, w: 1, o: 1, kernel: [2]int{1, 1}},
	{n: 2, c: 17, h: 5, w: 5, o: 35, kernel: [2]int{1, 1}},
	{n: 1, c: 35, h: 8, w: 6, o: 3, kernel: [2]int{1, 1}, stride: [2]int{2, 2}},
	{n: 2, c: 4, h: 7, w: 10, o: 5, kernel: [2]int{1, 1}, stride: [2]int{3, 3}},
	{n: 2, c: 3, h: 7, w: 9, o: 17, kernel: [2]int{3, 3}, padding: [2]int{1, 1}},
	{n: 5, c: 17, h: 8, w: 8, o: 35, kernel: [2]int{3, 3}, stride: [2]int{2, 2}, padding: [2]int{1, 1}},
	{n: 2, c: 16, h: 8, w: 8, o: 32, kernel: [2]int{3, 3}, padding: [2]int{1, 1}},
	{n: 1, c: 64, h: 4, w: 4, o: 64, kernel: [2]int{3, 3}, padding: [2]int{1, 1}},
	{n: 2, c: 5, h: 9, w: 9, o: 7, kernel: [2]int{5, 5}, padding: [2]int{2, 2}},
	{n: 3, c: 3, h: 15, w: 13, o: 17, kernel: [2]int{7, 7}, stride: [2]int{2, 2}, padding: [2]int{3, 3}},
	{n: 2, c: 3, h: 6, w: 5, o: 9, kernel: [2]int{2, 2}, stride: [2]int{2, 2}},
	{n: 1, c: 3, h: 9, w: 9, o: 33, kernel: [2]int{4, 4}, stride: [2]int{4, 4}},
	{n: 2, c: 6, h: 5, w: 8, o: 4, kernel: [2]int{3, 1}, padding: [2]int{1, 0}},
	{n: 2, c: 6, h: 5, w: 8, o: 4, kernel: [2]int{1, 5}, stride: [2]int{1, 2}, padding: [2]int{0, 2}},
	{n: 1, c: 2, h: 4, w: 4, o: 3, kernel: [2]int{2, 2}, padding: [2]int{3, 2}}, // windows entirely in the padding
	{n: 2, c: 6, h: 11, w: 10, o: 9, kernel: [2]int{3, 3}, padding: [2]int{2, 2}, dilated: [2]int{2, 2}},
	{n: 1, c: 17, h: 12, w: 11, o: 18, kernel: [2]int{3, 2}, stride: [2]int{2, 1}, padding: [2]int{1, 0},
		dilated: [2]int{3, 2}},
	{n: 2, c: 6, h: 5, w: 7, o: 4, kernel: [2]int{3, 3}, padding: [2]int{1, 1}, groups: 2},
	{n: 2, c: 35, h: 6, w: 5, o: 15, kernel: [2]int{3, 3}, stride: [2]int{2, 2}, padding: [2]int{1, 1}, groups: 5},
	{n: 1, c: 32, h: 5, w: 5, o: 64, kernel: [2]int{1, 1}, groups: 2},
	{n: 2, c: 17, h: 7, w: 6, o: 17, kernel: [2]int{3, 3}, padding: [2]int{1, 1}, groups: 17},
	{n: 1, c: 16, h: 6, w: 6, o: 16, kernel: [2]int{5, 5}, stride: [2]int{2, 2}, padding: [2]int{2, 2}, groups: 16},
	{n: 2, c: 3, h: 5, w: 5, o: 6, kernel: [2]int{3, 3}, groups: 3},
}

func atLeastOne(v [2]int) [2]int { return [2]int{max(v[0], 1), max(v[1], 1)} }

func (s convShape) op() device.Conv2D {
	return device.Conv2D{Groups: max(s.groups, 1),
		Window: device.Window{Stride: atLeastOne(s.stride), Padding: s.padding, Dilation: atLeastOne(s.dilated)}}
}

func (s convShape) out(d, in int) int {
	w := s.op().Window
	return (in+2*w.Padding[d]-w.Dilation[d]*(s.kernel[d]-1)-1)/w.Stride[d] + 1
}

func (s convShape) String() string {
	op := s.op()
	return fmt.Sprintf("n%d c%d %dx%d o%d k%dx%d s%dx%d p%dx%d d%dx%d g%d", s.n, s.c, s.h, s.w, s.o, s.kernel[0],
		s.kernel[1],
		op.Stride[0], op.Stride[1], op.Padding[0], op.Padding[1], op.Dilation[0], op.Dilation[1], op.Groups)
}

func convCases() []valueCase {
	var cases []valueCase
	for _, s := range convShapes {
		op := s.op()
		src := floats(symmetric, s.n, s.c, s.h, s.w)
		weight := floats(symmetric, s.o, s.c/op.Groups, s.kernel[0], s.kernel[1])
		bias := params(symmetric, s.o)
		diff := floats(symmetric, s.n, s.o, s.out(0, s.h), s.out(1, s.w))
		diffSrc := device.Conv2DDiffSrc{Conv2D: op, Height: s.h, Width: s.w}
		diffWeights := device.Conv2DDiffWeights{Conv2D: op, Kernel: s.kernel}
		withBias := diffWeights
		withBias.Bias = true
		cases = append(cases,
			valueCase{name: "forward " + s.String(), inputs: []input{src, weight}, run: one(op), tolerance: sums},
			valueCase{name: "forward with bias " + s.String(), inputs: []input{src, weight, bias}, run: one(op),
				tolerance: sums},
			valueCase{name: "diff_src " + s.String(), inputs: []input{diff, weight}, run: one(diffSrc),
				tolerance: sums},
			valueCase{name: "diff_weights " + s.String(), inputs: []input{src, diff}, run: one(diffWeights),
				tolerance: sums},
			valueCase{name: "diff_weights with bias " + s.String(), inputs: []input{src, diff}, run: one(withBias),
				tolerance: sums})
	}
	return cases
}
