package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var elementShapes = []tensor.Shape{{1}, {7}, {3, 35}, {2, 17, 3, 5}, {1, 3, 1, 1}, {2, 16, 4, 4}, {2, 3, 5, 1, 2}}

// unaryRanges lists each function with a range of inputs for which its values are neither saturated nor infinite.
var unaryRanges = []struct {
	f         device.UnaryFunc
	low, high float64
	tolerance tolerance
}{
	{device.ReLU, -1, 1, exact},
	{device.Sigmoid, -6, 6, functions},
	{device.Tanh, -4, 4, functions},
	{device.GELU, -4, 4, functions},
	{device.GELUTanh, -4, 4, functions},
	{device.Exp, -5, 5, functions},
	{device.Log, 0.1, 10, functions},
	{device.Sqrt, 0, 10, functions},
	{device.Square, -3, 3, exact},
	{device.Neg, -1, 1, exact},
	{device.Abs, -1, 1, exact},
}

func elementwiseCases() []valueCase {
	var cases []valueCase
	for _, shape := range elementShapes {
		for _, u := range unaryRanges {
			x := floats(Uniform(u.low, u.high), shape...)
			back := x
			if u.f == device.Sqrt {
				back.gen = Uniform(0.1, 10) // the derivative at 0 is infinite
			}
			// The terms of GELU and of its derivative can cancel: 1 is added to a function that approaches -1.
			var terms func(in []Tensor, i int) float64
			if u.f == device.GELU || u.f == device.GELUTanh {
				terms = func(in []Tensor, _ int) float64 { return norm(in[0].Values, nil) }
			}
			cases = append(cases,
				valueCase{name: fmt.Sprintf("%v %v", u.f, shape), inputs: []input{x}, run: one(device.Unary{Func: u.f}),
					tolerance: u.tolerance, terms: terms},
				valueCase{name: fmt.Sprintf("%v diff %v", u.f, shape),
					inputs: []input{floats(symmetric, shape...), back},
					run:    one(device.UnaryDiff{Func: u.f}), tolerance: functions, terms: terms})
		}
		cases = append(cases,
			valueCase{name: fmt.Sprintf("scale %v", shape),
				inputs: []input{floats(symmetric, shape...), params(Uniform(0.3, 3), 1)},
				run:    one(device.Scale{}), tolerance: exact})
		cases = append(cases, fillCases(shape)...)
		cases = append(cases, dropoutCases(shape)...)
	}
	cases = append(cases,
		valueCase{name: "relu diff at zero", inputs: []input{floats(symmetric, 9), floats(Integers(-1, 1), 9)},
			run: one(device.UnaryDiff{Func: device.ReLU}), tolerance: exact})
	return append(append(cases, imageDropoutCases()...), binaryCases()...)
}

func fillCases(shape tensor.Shape) []valueCase {
	var cases []valueCase
	for _, v := range []float64{0, 1, -0.1} {
		cases = append(cases, valueCase{name: fmt.Sprintf("fill %v with %g", shape, v), tolerance: exact,
			run: func(r *Runner, _ []Operand) []Operand {
				return r.Do(device.Fill{DType: r.Float, Shape: shape, Value: v})
			}})
	}
	return cases
}

// dropoutCases returns cases of dropout. All devices must keep exactly the same elements, and only the multiplication
// by the factor is rounded. The ids have more than 32 bits.
func dropoutCases(shape tensor.Shape) []valueCase {
	ids := fixedType(tensor.I64, Uniform(0, 1<<40), shape[0])
	key := fixedType(tensor.U32, Uniform(0, 1<<32), 2)
	var cases []valueCase
	for _, p := range []float64{0, 0.1, 0.5, 0.9} {
		cases = append(cases, valueCase{name: fmt.Sprintf("dropout %g %v", p, shape),
			run: one(device.Dropout{P: p, Stream: 7}), tolerance: exact,
			inputs: []input{floats(Uniform(1, 2), shape...), ids, key}})
	}
	return cases
}

// imageDropoutCases returns cases with images in the layout of the device's pooling. Positions are indices in (C, H, W)
// for every layout. The pooling has 1x1 windows, so it does not change values.
func imageDropoutCases() []valueCase {
	var cases []valueCase
	pool := device.AvgPool2D{Window: device.Window{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}, Kernel: [2]int{1, 1}}
	for _, s := range []tensor.Shape{{2, 16, 4, 4}, {3, 24, 2, 6}, {2, 8, 3, 5}, {1, 3, 4, 8}} {
		cases = append(cases, valueCase{name: fmt.Sprintf("dropout behind a pooling %v", s), tolerance: exact,
			inputs: []input{floats(Uniform(1, 2), s...), fixedType(tensor.I64, Uniform(0, 1<<40), s[0]),
				fixedType(tensor.U32, Uniform(0, 1<<32), 2)},
			run: func(r *Runner, in []Operand) []Operand {
				policy := r.Policy
				defer func() { r.Policy = policy }()
				r.Policy = Free
				image := r.Do(pool, in[0])[0]
				r.Policy = Carried
				return r.Do(device.Dropout{P: 0.5, Stream: 7}, image, in[1], in[2])
			}})
	}
	return cases
}

func binaryCases() []valueCase {
	operands := [][2]tensor.Shape{
		{{7}, {7}},
		{{2, 17, 3, 5}, {2, 17, 3, 5}},
		{{3, 35}, {35}},
		{{3, 35}, {3, 1}},
		{{2, 17, 3, 5}, {17, 1, 1}},
		{{2, 17, 3, 5}, {1, 17, 1, 1}},
		{{2, 17, 3, 5}, {2, 1, 3, 1}},
		{{2, 3, 5}, {}},
		{{3, 16}, {16}},
		{{3, 16}, {3, 1}},
		{{2, 16, 4, 4}, {1}},
		{{1, 3, 1, 1}, {1, 3, 1, 1}},
	}
	var cases []valueCase
	for _, s := range operands {
		for f := device.Add; f <= device.Min; f++ {
			cases = append(cases, valueCase{name: fmt.Sprintf("%v %v with %v", f, s[0], s[1]),
				run: one(device.Binary{Func: f}), tolerance: exact,
				inputs: []input{floats(symmetric, s[0]...), floats(Uniform(0.5, 2), s[1]...)}})
		}
	}
	return cases
}
