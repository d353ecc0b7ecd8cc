package gpumodel

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Options are settings of package cuda that change times.
type Options struct {
	NarrowGradients bool // HETERO_CUDA_NARROW_GRADIENTS=1: weight gradients of convolutions in 16 bits
}

// Time is the predicted time of a launch.
type Time struct {
	Seconds float64
	// LimitSeconds is the longer of arithmetic and memory traffic, at the rates of the data sheet. Seconds can be below
	// it: an embedding reads only a part of its table, and operands can be in the L2 cache.
	LimitSeconds float64
	FLOPs        int64
	Bytes        int64
	Kind         string // kind of the launch
	Like         string // measured kind whose efficiency the prediction uses
	Measured     bool   // launches of this kind were measured on an H100: Like is Kind
}

// Narrow reports whether the launch computes weight gradients of convolutions in 16 bits.
func (t Time) Narrow() bool { return strings.Contains(t.Kind, narrow) }

// Predict predicts the time of a launch of op with the given operands. Its errors name a type that g cannot multiply.
func (g GPU) Predict(op device.Op, in, out []device.TensorSpec, o Options) (Time, error) {
	k, name, measured := g.kindOf(op, in, out, o)
	t := Time{FLOPs: device.FLOPs(allRows(op), in, out), Bytes: device.MovedBytes(in, out), Kind: name, Like: k.Name,
		Measured: measured}
	dt := tensor.F32
	if len(in) > 0 {
		dt = in[0].DType
	}
	rate := g.rate(dt, k.Product)
	if rate == 0 {
		return t, fmt.Errorf("%s: %s has no products of type %v", op.Kind(), g.Model, dt)
	}
	if k.Efficiency > 1 && name != "embedding" && t.Bytes > g.L2Bytes {
		k.Efficiency = 1 // the operands come from memory
	}
	arithmetic, traffic := float64(t.FLOPs)/rate, float64(t.Bytes)/g.BytesPerSecond
	t.LimitSeconds = max(arithmetic, traffic)
	t.Seconds = k.Fixed + max(arithmetic/k.Efficiency, traffic/cmp.Or(k.Traffic, k.Efficiency))
	return t, nil
}

// allRows returns an op whose FLOPs count all rows: the kernels of package cuda also compute rows without a label,
// because the host does not know their number.
func allRows(op device.Op) device.Op {
	switch op := op.(type) {
	case device.LinearCrossEntropy:
		op.Fraction = 0
		return op
	case device.LinearCrossEntropyDiff:
		op.Fraction = 0
		return op
	case device.LinearCrossEntropyBoth:
		op.Fraction = 0
		return op
	}
	return op
}
