package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Optimizers run once over the flat parameter buffer. They use only correctly rounded f32 operations (+ - * / sqrt),
// each rounded separately (no fused multiply-add, no fast reciprocal), in the order written here. The results are
// therefore bit-equal on all devices.
//
// hyper and control are read from device memory:
//
//	hyper    f32 (4)  values of the schedule, see each op
//	control  f32 (3)  {norm, scale, ok} from GradControl: gradients are multiplied by scale; ok = 0 changes nothing

// Segment is a range of the flat buffer with its own factors.
type Segment struct {
	Offset, Length int64 // in elements
	WeightDecay    float32
	LRScale        float32
}

// SumSquares sums x² over consecutive chunks in f64, with one partial sum per chunk. The norm is therefore bit-equal
// for any number of threads or ranks.
//
//	in   x (n), f32
//	out  partial (ceil(n/Chunk)), f64
type SumSquares struct{ Chunk int64 }

// GradControl converts partial sums to the control values of the optimizers:
//
//	norm  = sqrt(sum of partials in order)·unscale
//	scale = unscale·min(1, MaxNorm/norm), or unscale if MaxNorm is 0
//	ok    = 1 if norm is finite, else 0
//
//	in   partial (k), f64; unscale (1), f32: undoes the loss scale
//	out  control (3), f32
type GradControl struct{ MaxNorm float64 }

// SGD is stochastic gradient descent as in PyTorch. hyper = {lr}. For each element, with weight decay d and rate factor
// s of its segment:
//
//	g = grad·scale;  g = g + d·w;  m = Momentum·m + g;  u = Nesterov ? g + Momentum·m : m;  w = w - (lr·s)·u
//
//	in   hyper (4); control (3); value (n); grad (n); [moment (n)] if Momentum != 0
//	out  value (n); [moment (n)]: in place
type SGD struct {
	Momentum float32
	Nesterov bool
	Segments []Segment
}

// AdamW is Adam with decoupled weight decay. hyper = {lr, lr/(1-Beta1^t), sqrt(1-Beta2^t)} at step t. For each element,
// with d and s as in SGD:
//
//	g = grad·scale;  w = w - ((lr·s)·d)·w;  m = Beta1·m + (1-Beta1)·g;  v = Beta2·v + ((1-Beta2)·g)·g
//	w = w - (hyper[1]·s)·(m / (sqrt(v)/hyper[2] + Eps))
//
//	in   hyper (4); control (3); value (n); grad (n); m (n); v (n)
//	out  value (n); m (n); v (n): in place
type AdamW struct {
	Beta1, Beta2, Eps float32
	Segments          []Segment
}

// MovingAverage updates running averages from values, like PyTorch's lerp. With the weight w, for each element:
//
//	a = w < 0.5 ? a + w·(x - a) : x - (x - a)·(1 - w)
//
// A weight of 1 copies the value. If ok of control is 0, the averages stay unchanged.
//
//	in   weight (1), f32; control (3); average (n); value (n)
//	out  average (n): in place
type MovingAverage struct{}

// Kind implements Op.
func (SumSquares) Kind() string { return "sum_squares" }

// Kind implements Op.
func (GradControl) Kind() string { return "grad_control" }

// Kind implements Op.
func (SGD) Kind() string { return "sgd" }

// Kind implements Op.
func (AdamW) Kind() string { return "adamw" }

// Kind implements Op.
func (MovingAverage) Kind() string { return "moving_average" }

// Infer implements Op.
func (op SumSquares) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := firstError(wantDims(op, "x", in[0], 1), wantType(op, "x", in[0], tensor.F32, tensor.F64)); err != nil {
		return nil, err
	}
	if op.Chunk < 1 {
		return nil, fmt.Errorf("sum_squares: chunk: got %d, want at least 1", op.Chunk)
	}
	return []TensorSpec{Spec(tensor.F64, int((int64(in[0].Shape[0])+op.Chunk-1)/op.Chunk))}, nil
}

// Infer implements Op.
func (op GradControl) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	err := firstError(wantDims(op, "partial", in[0], 1), wantType(op, "partial", in[0], tensor.F64),
		wantShape(op, "unscale", in[1], 1))
	return []TensorSpec{Spec(tensor.F32, 3)}, err
}

// checkOptimizer checks hyper, control and state (value, grad, moments), and the segments.
func checkOptimizer(op Op, in []TensorSpec, segments []Segment) error {
	if err := firstError(wantShape(op, "hyper", in[0], 4), wantShape(op, "control", in[1], 3),
		wantDims(op, "value", in[2], 1)); err != nil {
		return err
	}
	n := in[2].Shape[0]
	for i, name := range []string{"grad", "first moment", "second moment"}[:len(in)-3] {
		if err := firstError(wantShape(op, name, in[3+i], n), wantType(op, name, in[3+i], in[2].DType)); err != nil {
			return err
		}
	}
	end := int64(0)
	for i, s := range segments {
		if s.Offset < end || s.Length < 0 || s.Offset+s.Length > int64(n) {
			return fmt.Errorf("%s: segment %d: [%d, %d): want ascending ranges inside %d elements", op.Kind(), i,
				s.Offset, s.Offset+s.Length, n)
		}
		end = s.Offset + s.Length
	}
	return nil
}

// Infer implements Op.
func (op SGD) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 4
	if op.Momentum != 0 {
		want = 5
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	if err := checkOptimizer(op, in, op.Segments); err != nil {
		return nil, err
	}
	out := []TensorSpec{in[2]}
	if op.Momentum != 0 {
		out = append(out, in[4])
	}
	return out, nil
}

// Infer implements Op.
func (op AdamW) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 6); err != nil {
		return nil, err
	}
	if err := checkOptimizer(op, in, op.Segments); err != nil {
		return nil, err
	}
	return []TensorSpec{in[2], in[4], in[5]}, nil
}

// Infer implements Op.
func (op MovingAverage) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 4); err != nil {
		return nil, err
	}
	if err := firstError(wantShape(op, "weight", in[0], 1), wantShape(op, "control", in[1], 3),
		wantDims(op, "average", in[2], 1)); err != nil {
		return nil, err
	}
	err := firstError(wantShape(op, "value", in[3], in[2].Shape[0]), wantType(op, "value", in[3], in[2].DType))
	return []TensorSpec{in[2]}, err
}

// Aliases implements Aliaser.
func (MovingAverage) Aliases() []Alias { return []Alias{{Out: 0, In: 2}} }

// Aliases implements Aliaser.
func (op SGD) Aliases() []Alias {
	if op.Momentum == 0 {
		return []Alias{{Out: 0, In: 2}}
	}
	return []Alias{{Out: 0, In: 2}, {Out: 1, In: 4}}
}

// Aliases implements Aliaser.
func (AdamW) Aliases() []Alias { return []Alias{{Out: 0, In: 2}, {Out: 1, In: 4}, {Out: 2, In: 5}} }
