package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func lossCases() []valueCase {
	var cases []valueCase
	for _, s := range []struct {
		n, classes   int
		span         float64 // logits are in ±span
		smoothing    float64
		firstIgnored bool
	}{
		{1, 1, 1, 0, false},
		{2, 3, 4, 0, false},
		{7, 10, 4, 0.1, true},
		{33, 1000, 6, 0, true},
		{5, 100, 6, 0.1, false},
		{3, 17, 90, 0, false}, // with such logits, exp overflows in f32 unless the largest logit is subtracted
		{3, 17, 90, 0.2, true},
		{4, 35, 1e-3, 0.99, false},
	} {
		logits := Uniform(-s.span, s.span)
		label := Integers(0, s.classes-1)
		labels := fixedType(tensor.I32, func(seed, i uint64) float64 {
			if s.firstIgnored && i%3 == 0 {
				return -1 - float64(i) // every negative label is ignored
			}
			return label(seed, i)
		}, s.n)
		name := fmt.Sprintf(" n%d classes %d logits within %g smoothing %g", s.n, s.classes, s.span, s.smoothing)
		forward := device.SoftmaxCrossEntropy{LabelSmoothing: s.smoothing}
		back := device.SoftmaxCrossEntropyDiff{LabelSmoothing: s.smoothing}
		cases = append(cases,
			valueCase{name: "softmax_cross_entropy" + name, inputs: []input{floats(logits, s.n, s.classes), labels},
				run: one(forward), tolerance: functions},
			valueCase{name: "softmax_cross_entropy diff" + name, tolerance: functions,
				inputs: []input{floats(logits, s.n, s.classes), labels, params(Uniform(0.001, 1), 1)},
				run: func(r *Runner, in []Operand) []Operand {
					saved := r.Do(forward, in[0], in[1])
					return r.Do(back, in[0], in[1], saved[2], in[2])
				}})
	}
	cases = append(cases, mixedCases()...)
	cases = append(cases, valueCase{name: "position among equal scores", run: one(device.SoftmaxCrossEntropy{}),
		tolerance: functions,
		inputs:    []input{floats(Integers(0, 2), 9, 7), fixedType(tensor.I32, Integers(0, 6), 9)}})
	for _, s := range []tensor.Shape{{1, 1, 1, 1}, {2, 5, 7, 3}, {3, 4, 4, 3}, {1, 3, 2, 17}} {
		mean, std := make([]float32, s[3]), make([]float32, s[3])
		for i := range mean {
			mean[i], std[i] = float32(0.4+0.01*float64(i)), float32(0.2+0.02*float64(i))
		}
		cases = append(cases, valueCase{name: fmt.Sprintf("image_normalize %v", s),
			inputs: []input{fixedType(tensor.U8, Integers(0, 255), s...)}, tolerance: sums,
			run: func(r *Runner, in []Operand) []Operand {
				return r.Do(device.ImageNormalize{Mean: mean, Std: std, To: r.Float}, in...)
			}})
	}
	return cases
}

// mixedCases returns cases with two labels per sample. They include lambdas of 0 and 1, equal labels and ignored
// labels.
func mixedCases() []valueCase {
	var cases []valueCase
	for _, s := range []struct {
		n, classes int
		smoothing  float64
	}{{1, 1, 0}, {7, 3, 0}, {9, 10, 0.1}, {33, 1000, 0}, {6, 35, 0.2}} {
		label := Integers(0, s.classes-1)
		labels := func(salt uint64) input {
			return fixedType(tensor.I32, func(seed, i uint64) float64 {
				if i%5 == 4 {
					return -1 // an ignored label, regardless of the second label
				}
				return label(seed+salt, i)
			}, s.n)
		}
		lambdas := params(func(seed, i uint64) float64 {
			if i%4 < 2 {
				return float64(i % 4)
			}
			return float64(float32(Uniform(0, 1)(seed, i)))
		}, s.n)
		logits := floats(Uniform(-5, 5), s.n, s.classes)
		name := fmt.Sprintf(" of mixed samples n%d classes %d smoothing %g", s.n, s.classes, s.smoothing)
		forward := device.SoftmaxCrossEntropy{LabelSmoothing: s.smoothing, Mixed: true}
		cases = append(cases,
			valueCase{name: "softmax_cross_entropy" + name, inputs: []input{logits, labels(0), labels(1), lambdas},
				run: one(forward), tolerance: functions},
			valueCase{name: "softmax_cross_entropy diff" + name, tolerance: functions,
				inputs: []input{logits, labels(0), labels(1), lambdas, params(Uniform(0.001, 1), 1)},
				run: func(r *Runner, in []Operand) []Operand {
					saved := r.Do(forward, in[:4]...)
					return r.Do(device.SoftmaxCrossEntropyDiff{LabelSmoothing: s.smoothing, Mixed: true}, in[0], in[1],
						saved[2], in[4], in[2], in[3])
				}})
	}
	return cases
}
