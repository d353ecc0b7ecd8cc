package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// linearShapes lists (N, I, O) of the linear cases.
var linearShapes = [][3]int{{1, 1, 1}, {2, 3, 17}, {7, 35, 10}, {33, 64, 48}, {5, 300, 10}, {64, 17, 1}, {1, 5, 100},
	{100, 130, 70}, {67, 34, 7}, {2101, 18, 10}, {300, 4, 264}}

// biased is the tolerance of a linear layer with a bias and a 16-bit result.
var biased = tolerance{floor: sums.floor, inner: 0.5,
	reason: sums.reason + "; the bias may be rounded to the type of the result"}

// eighths generates multiples of 1/8, which have few significant bits.
func eighths(seed, i uint64) float64 { return Integers(-8, 8)(seed, i) / 8 }

func linearCases() []valueCase {
	var cases []valueCase
	for _, s := range linearShapes {
		n, i, o := s[0], s[1], s[2]
		name := fmt.Sprintf(" n%d i%d o%d", n, i, o)
		src, weight, bias := floats(symmetric, n, i), floats(symmetric, o, i), params(symmetric, o)
		diff := floats(symmetric, n, o)
		// A device may round the gradient of f32 logits to the type of the other factor. Its values are therefore
		// chosen such that 16-bit types represent them exactly.
		wideDiff := params(eighths, n, o)
		wide := func(r *Runner, in []Operand) []Operand { return r.Do(device.Linear{To: r.Param}, in...) }
		diffWeights, withBias := device.LinearDiffWeights{}, device.LinearDiffWeights{Bias: true}
		cases = append(cases,
			valueCase{name: "forward" + name, inputs: []input{src, weight}, run: one(device.Linear{}), tolerance: sums},
			valueCase{name: "forward with bias" + name, inputs: []input{src, weight, bias}, run: one(device.Linear{}),
				tolerance: biased},
			valueCase{name: "forward to f32" + name, inputs: []input{src, weight, bias}, run: wide, tolerance: sums},
			valueCase{name: "diff_src" + name, inputs: []input{diff, weight}, run: one(device.LinearDiffSrc{}),
				tolerance: sums},
			valueCase{name: "diff_src from f32" + name, inputs: []input{wideDiff, weight},
				run: one(device.LinearDiffSrc{}), tolerance: sums},
			valueCase{name: "diff_weights" + name, inputs: []input{src, diff}, run: one(diffWeights), tolerance: sums},
			valueCase{name: "diff_weights with bias" + name, inputs: []input{src, diff}, run: one(withBias),
				tolerance: sums},
			valueCase{name: "diff_weights from f32" + name, inputs: []input{src, wideDiff}, run: one(withBias),
				tolerance: sums})
	}
	return cases
}
