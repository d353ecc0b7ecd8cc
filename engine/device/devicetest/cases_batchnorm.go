package devicetest

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// normShape describes images (n, c, h, w). The field group is the number of samples in a statistics group; 0: all
// samples.
type normShape struct{ n, c, h, w, group int }

var normShapes = []normShape{
	{1, 1, 2, 2, 0},
	{2, 3, 5, 7, 0},
	{4, 17, 3, 3, 2},
	{5, 35, 2, 3, 2}, // the last group has one sample
	{7, 16, 4, 4, 3}, // the last group also has one sample
	{3, 32, 1, 1, 0},
	{8, 64, 4, 4, 4},
	{3, 5, 9, 8, 1},
	{2, 4, 3, 3, 5}, // a group larger than the batch is one group
	{1, 3, 1, 1, 0}, // one value per channel: variance 0
}

const normEps = 1e-5

func (s normShape) String() string {
	return fmt.Sprintf("n%d c%d %dx%d group %d", s.n, s.c, s.h, s.w, s.group)
}

// images and the functions below return the operands of the BatchNorm ops.
func (s normShape) images(gen Generator) input { return floats(gen, s.n, s.c, s.h, s.w) }
func (s normShape) normInputs() []input {
	g := device.Groups(s.n, s.group)
	return []input{s.images(symmetric), params(Uniform(-0.2, 0.2), g, s.c), params(Uniform(0.2, 0.5), g, s.c),
		params(Uniform(0.5, 1.5), s.c), params(Uniform(-0.5, 0.5), s.c)}
}

func batchNormCases() []valueCase {
	var cases []valueCase
	for _, s := range normShapes {
		stats := device.BatchNormStats{Group: s.group}
		cases = append(cases,
			valueCase{name: "stats " + s.String(), inputs: []input{s.images(symmetric)}, run: one(stats),
				tolerance: statistics},
			valueCase{name: "stats far from zero " + s.String(), inputs: []input{s.images(Uniform(99, 101))},
				run: one(stats), tolerance: statistics})
		for _, relu := range []bool{false, true} {
			for _, add := range []bool{false, true} {
				cases = append(cases, applyCases(s, relu, add)...)
				cases = append(cases, diffReduceCases(s, relu, add)...)
			}
			apply := device.BatchNormDiffApply{Group: s.group, Eps: normEps, ReLU: relu}
			g := device.Groups(s.n, s.group)
			inputs := append(s.normInputs(), s.images(symmetric), params(symmetric, g, s.c), params(symmetric, g, s.c))
			cases = append(cases, valueCase{name: fmt.Sprintf("diff_apply %v relu %t", s, relu), inputs: inputs,
				run: one(apply), tolerance: statistics})
			if s.group == 0 {
				apply.Count = 3 * int64(s.n*s.h*s.w)
				cases = append(cases,
					valueCase{name: fmt.Sprintf("diff_apply with the count of several ranks %v relu %t", s, relu),
						inputs: inputs, run: one(apply), tolerance: statistics})
			}
		}
		cases = append(cases, runningCase(s))
		if s.n*s.h*s.w > 1 { // with one value per channel, the exact gradient is 0, so rounding errors would dominate
			cases = append(cases, trainingNormCase(s))
		}
	}
	many := normShape{2, 16, 96, 96, 0} // enough rows that a GPU divides them among many blocks
	cases = append(cases, valueCase{name: "stats " + many.String(), inputs: []input{many.images(Uniform(0.5, 1.5))},
		run: one(device.BatchNormStats{}), tolerance: statistics})
	cases = append(cases, diffReduceCases(many, false, false)[0])
	return append(cases, mergeCases()...)
}

// mergeCases returns cases that merge the statistics of ranks with different shares, including shares of 0.
func mergeCases() []valueCase {
	var cases []valueCase
	for _, m := range []struct {
		name     string
		samples  []int32
		channels int
		mean     Generator
	}{
		{"of one rank", []int32{5}, 3, symmetric},
		{"of equal shares", []int32{8, 8}, 64, symmetric},
		{"of unlike shares", []int32{40, 19, 5}, 17, symmetric},
		{"of one sample each", []int32{1, 1, 1, 1, 1, 1, 1}, 5, symmetric},
		{"with ranks that have no samples", []int32{0, 3, 0, 13, 0}, 33, symmetric},
		{"with one rank that has samples", []int32{0, 0, 9}, 16, symmetric},
		{"far from zero", []int32{2, 7, 3, 30}, 20, Uniform(99, 101)},
		{"of shares beyond 2^24", []int32{1 << 30, 3, 1<<25 + 1}, 7, symmetric},
	} {
		samples := fixedType(tensor.I32, func(_, i uint64) float64 { return float64(m.samples[i]) }, len(m.samples))
		cases = append(cases, valueCase{name: "merge " + m.name, run: one(device.BatchNormMerge{}), tolerance: merged,
			inputs: []input{params(mergeRows(m.mean, m.samples, m.channels), len(m.samples), 2, m.channels), samples}})
	}
	return cases
}

var merged = tolerance{
	exact: true, reason: "the op fixes every operation and its rounding: ranks must agree to the last bit"}

// Running statistics must be exact for the same reason as merged ones: every rank updates its own copy, and all copies
// must be bit-equal.
var running = merged

// mergeRows generates rows of means and variances. The means come from the generator mean, and the variances are in [0,
// 1). Rows of ranks without samples contain NaN, because the op must not read these rows.
func mergeRows(mean Generator, samples []int32, channels int) Generator {
	return func(seed, i uint64) float64 {
		row := i / uint64(channels)
		switch {
		case samples[row/2] == 0:
			return math.NaN()
		case row%2 == 0:
			return mean(seed, i)
		}
		return Uniform(0, 1)(seed, i)
	}
}

func applyCases(s normShape, relu, add bool) []valueCase {
	op := device.BatchNormApply{Group: s.group, Eps: normEps, ReLU: relu, Add: add}
	inputs := s.normInputs()
	running := s.normInputs()
	running[1].shape, running[2].shape = tensor.Shape{s.c}, tensor.Shape{s.c}
	if add {
		inputs, running = append(inputs, s.images(symmetric)), append(running, s.images(symmetric))
	}
	name := fmt.Sprintf(" %v relu %t add %t", s, relu, add)
	return []valueCase{
		{name: "apply" + name, inputs: inputs, run: one(op), tolerance: statistics},
		{name: "apply running statistics" + name, inputs: running, run: one(op), tolerance: statistics},
	}
}

// diffReduceCases returns cases that use the mask of the forward op, if it has one.
func diffReduceCases(s normShape, relu, add bool) []valueCase {
	var cases []valueCase
	for _, two := range []bool{false, true} {
		forward := device.BatchNormApply{Group: s.group, Eps: normEps, ReLU: relu, Add: add}
		op := device.BatchNormDiffReduce{Group: s.group, Eps: normEps, ReLU: relu, Add: add, Two: two}
		inputs := append(s.normInputs(), s.images(symmetric)) // diff_y
		if two {
			inputs = append(inputs, s.images(symmetric)) // diff_y2
		}
		masked := relu && add
		if masked {
			inputs = append(inputs, s.images(symmetric)) // residual
		}
		cases = append(cases, valueCase{
			name: fmt.Sprintf("diff_reduce %v relu %t add %t two %t", s, relu, add, two), inputs: inputs,
			tolerance: statistics,
			run: func(r *Runner, in []Operand) []Operand {
				if !masked {
					return r.Do(op, in...)
				}
				last := len(in) - 1
				saved := r.Do(forward, append(in[:5:5], in[last])...)
				return r.Do(op, append(in[:last:last], saved[1])...)
			},
		})
	}
	return cases
}

func runningCase(s normShape) valueCase {
	shape := tensor.Shape{s.n, s.c, s.h, s.w}
	op := device.BatchNormRunning{Momentum: 0.1, Counts: device.GroupCounts(shape, s.group)}
	g := len(op.Counts)
	return valueCase{name: "running " + s.String(), run: one(op), tolerance: running, inputs: []input{
		params(symmetric, s.c), params(Uniform(0.5, 2), s.c), params(symmetric, g, s.c),
		params(Uniform(0.5, 2), g, s.c)}}
}

// trainingNormCase runs a complete layer, forward and backward, that computes its own statistics.
func trainingNormCase(s normShape) valueCase {
	return valueCase{name: "forward and backward " + s.String(), tolerance: statistics,
		types: []tensor.DType{tensor.F32, tensor.F64},
		inputs: []input{s.images(Uniform(-1, 3)), params(Uniform(0.5, 1.5), s.c), params(Uniform(-0.5, 0.5), s.c),
			s.images(symmetric)},
		run: func(r *Runner, in []Operand) []Operand {
			x, gamma, beta, diffY := in[0], in[1], in[2], in[3]
			stats := r.Do(device.BatchNormStats{Group: s.group}, x)
			common := []Operand{x, stats[0], stats[1], gamma, beta}
			y := r.Do(device.BatchNormApply{Group: s.group, Eps: normEps, ReLU: true}, common...)
			sums := r.Do(device.BatchNormDiffReduce{Group: s.group, Eps: normEps, ReLU: true},
				append(common[:5:5], diffY)...)
			diffX := r.Do(device.BatchNormDiffApply{Group: s.group, Eps: normEps, ReLU: true},
				append(common[:5:5], diffY, sums[0], sums[1])...)
			return []Operand{y[0], sums[0], sums[1], diffX[0]}
		}}
}
