package devicetest

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// f32Only is the list of types for optimizers and norms. Their state is f32 for every type of activations.
var f32Only = []tensor.DType{tensor.F32}

// segmentsOf divides n elements into three segments with different factors. The gaps at both ends of the second segment
// must stay unchanged.
func segmentsOf(n int64) []device.Segment {
	if n < 16 {
		return []device.Segment{{Offset: 0, Length: n, WeightDecay: 0.01, LRScale: 1}}
	}
	return []device.Segment{
		{Offset: 0, Length: n / 3, WeightDecay: 5e-4, LRScale: 1},
		{Offset: n/3 + 1, Length: n / 4, WeightDecay: 0, LRScale: 0.1},
		{Offset: n/3 + n/4 + 3, Length: 1, WeightDecay: 0.1, LRScale: 2},
		{Offset: n - n/5, Length: n / 5, WeightDecay: 0.05, LRScale: 1.5},
	}
}

// listed returns a generator that repeats the values in list.
func listed(list ...float64) Generator {
	return func(_, i uint64) float64 { return list[i%uint64(len(list))] }
}

func optimCases() []valueCase {
	var cases []valueCase
	for _, n := range []int{1, 7, 16, 100, 1037} {
		segments := segmentsOf(int64(n))
		for _, control := range []struct {
			name string
			gen  Generator
		}{
			{"", listed(1, 1, 1)},
			{" clipped", listed(3, 0.3333, 1)},
			{" refused", listed(1, 1, 0)},
		} {
			hyper := fixedType(tensor.F32, listed(0.1, 0.0123, 0.0316, 0), 4)
			state := func(grad Generator) []input {
				return []input{hyper, fixedType(tensor.F32, control.gen, 3), params(symmetric, n), params(grad, n)}
			}
			moment, square := params(Uniform(-0.1, 0.1), n), params(Uniform(0, 0.01), n)
			for _, grad := range []struct {
				name string
				gen  Generator
			}{
				{"", Uniform(-0.01, 0.01)},
				{" with subnormal squares", Uniform(-1e-21, 1e-21)},
			} {
				name := fmt.Sprintf(" n%d%s%s", n, control.name, grad.name)
				sgd := func(momentum float32, nesterov bool) device.SGD {
					return device.SGD{Momentum: momentum, Nesterov: nesterov, Segments: segments}
				}
				adamw := device.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Segments: segments}
				cases = append(cases,
					updateCase("sgd"+name, sgd(0, false), state(grad.gen)),
					updateCase("sgd momentum"+name, sgd(0.9, false), append(state(grad.gen), moment)),
					updateCase("sgd nesterov"+name, sgd(0.9, true), append(state(grad.gen), moment)),
					updateCase("adamw"+name, adamw, append(state(grad.gen), moment, square)),
					updateCase("adamw from rest"+name, adamw,
						append(state(grad.gen), params(listed(0), n), params(listed(0), n))))
			}
		}
	}
	return append(append(cases, averageCases()...), normCases()...)
}

func updateCase(name string, op device.Op, inputs []input) valueCase {
	return valueCase{name: name, inputs: inputs, run: one(op), types: f32Only,
		tolerance: tolerance{exact: true, reason: "replicas on unlike devices stay equal bit for bit"}}
}

func averageCases() []valueCase {
	var cases []valueCase
	for _, n := range []int{1, 7, 16, 1037, 20000} {
		for _, weight := range []float64{0, 1e-4, 0.3, 0.5, 0.63, 1} {
			// weights for both formulas, including both ends of the range
			for _, ok := range []float64{1, 0} {
				cases = append(cases, updateCase(fmt.Sprintf("moving_average n%d weight %g ok %g", n, weight, ok),
					device.MovingAverage{},
					[]input{fixedType(tensor.F32, listed(weight), 1), fixedType(tensor.F32, listed(1, 1, ok), 3),
						params(symmetric, n), params(symmetric, n)}))
			}
		}
	}
	return cases
}

func normCases() []valueCase {
	var cases []valueCase
	squares := tolerance{exact: false, reason: "sums in f64"}
	for _, n := range []int{1, 7, 1000, 1037} {
		for _, chunk := range []int64{1, 64, 1000, 4096} {
			cases = append(cases, valueCase{name: fmt.Sprintf("sum_squares n%d chunk %d", n, chunk), types: f32Only,
				tolerance: squares,
				inputs:    []input{params(symmetric, n)}, run: one(device.SumSquares{Chunk: chunk})})
		}
	}
	for _, maxNorm := range []float64{0, 0.5, 1e6} {
		for _, p := range []struct {
			name     string
			partials Generator
		}{
			{"", Uniform(0, 3)},
			{" of zero", listed(0)},
			{" of NaN", listed(1, math.NaN())},
			{" of infinity", listed(1, math.Inf(1))},
		} {
			cases = append(cases, valueCase{name: fmt.Sprintf("grad_control max norm %g%s", maxNorm, p.name),
				types:     f32Only,
				inputs:    []input{fixedType(tensor.F64, p.partials, 17), fixedType(tensor.F32, listed(1.0/1024), 1)},
				run:       one(device.GradControl{MaxNorm: maxNorm}),
				tolerance: tolerance{exact: true, reason: "every rank computes its own control, and all must agree"}})
		}
	}
	return cases
}
