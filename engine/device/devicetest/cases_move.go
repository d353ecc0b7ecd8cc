package devicetest

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func moveCases() []valueCase {
	var cases []valueCase
	add := func(name string, op device.Op, tol tolerance, shapes ...tensor.Shape) {
		c := valueCase{name: name, run: one(op), tolerance: tol}
		for _, s := range shapes {
			name += fmt.Sprintf(" %v", s)
			c.inputs = append(c.inputs, floats(symmetric, s...))
		}
		c.name = name
		cases = append(cases, c)
	}
	add("transpose", device.Transpose{Perm: []int{1, 0}}, exact, tensor.Shape{3, 35})
	add("transpose", device.Transpose{Perm: []int{0, 2, 3, 1}}, exact, tensor.Shape{2, 17, 3, 5})
	add("transpose", device.Transpose{Perm: []int{3, 0, 2, 1}}, exact, tensor.Shape{2, 3, 5, 7})
	add("transpose", device.Transpose{Perm: []int{2, 1, 0}}, exact, tensor.Shape{1, 7, 1})
	add("reshape to (6, 85)", device.Reshape{Shape: tensor.Shape{6, 85}}, exact, tensor.Shape{2, 17, 3, 5})
	add("reshape to ()", device.Reshape{Shape: tensor.Shape{}}, exact, tensor.Shape{1, 1})
	add("concat 0", device.Concat{Axis: 0}, exact, tensor.Shape{3, 5}, tensor.Shape{1, 5})
	add("concat 1", device.Concat{Axis: 1}, exact, tensor.Shape{2, 17, 3, 5}, tensor.Shape{2, 3, 3, 5},
		tensor.Shape{2, 1, 3, 5})
	add("concat 3", device.Concat{Axis: 3}, exact, tensor.Shape{2, 3, 4, 5}, tensor.Shape{2, 3, 4, 2})
	add("concat of one", device.Concat{Axis: 0}, exact, tensor.Shape{7})
	add("concat of many", device.Concat{Axis: 1}, exact, slices.Repeat([]tensor.Shape{{3, 5}}, device.MaxOperands)...)
	images := tensor.Shape{5, 17, 4, 6}
	for axis, s := range images {
		add(fmt.Sprintf("slice axis %d", axis), device.Slice{Axis: axis, Start: 1, Size: s - 2}, exact, images)
		add(fmt.Sprintf("pad axis %d", axis), device.Pad{Axis: axis, Start: 1, Size: s + 4}, exact, images)
	}
	for f := device.Sum; f <= device.Maximum; f++ {
		tol := sums
		if f == device.Maximum {
			tol = exact
		}
		for _, axes := range [][]int{{0}, {1}, {0, 2, 3}, {2, 3}, {3}, {0, 1, 2, 3}, {}} {
			add(fmt.Sprintf("reduce %v over %v", f, axes), device.Reduce{Func: f, Axes: axes}, tol,
				tensor.Shape{3, 17, 2, 5})
		}
	}
	add("broadcast (N) over (N, C)", device.Broadcast{Shape: tensor.Shape{3, 35}, Axes: []int{1}}, exact,
		tensor.Shape{3})
	add("broadcast (C) over images", device.Broadcast{Shape: tensor.Shape{2, 17, 3, 5}, Axes: []int{0, 2, 3}}, exact,
		tensor.Shape{17})
	add("broadcast of a scalar", device.Broadcast{Shape: tensor.Shape{2, 3}, Axes: []int{0, 1}}, exact, tensor.Shape{})
	for _, s := range []tensor.Shape{{1}, {35}, {3, 7}, {2, 17, 3, 5}, {2, 3, 4, 5, 2}} {
		cases = append(cases, conversionCases(s)...)
	}
	return cases
}

// conversionCases returns conversions between the element types of activations and parameters, in both directions.
func conversionCases(s tensor.Shape) []valueCase {
	return []valueCase{
		{name: fmt.Sprintf("reorder to f32 %v", s), inputs: []input{floats(symmetric, s...)}, tolerance: exact,
			run: func(r *Runner, in []Operand) []Operand { return r.Do(device.Reorder{To: r.Param}, in...) }},
		{name: fmt.Sprintf("reorder from f32 %v", s), inputs: []input{params(symmetric, s...)}, tolerance: exact,
			run: func(r *Runner, in []Operand) []Operand { return r.Do(device.Reorder{To: r.Float}, in...) }},
	}
}
