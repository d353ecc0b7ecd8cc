package device

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Reorder converts the layout, the element type, or both. Conversion to bf16 and f16 rounds to nearest even.
//
//	in   src
//	out  dst, of src's shape and type To
type Reorder struct{ To tensor.DType }

// Transpose permutes dimensions: dst dimension i is src dimension Perm[i].
//
//	in   src
//	out  dst
type Transpose struct{ Perm []int }

// Reshape reads the same row-major elements in another shape. Both sides are plain, so they can share memory.
//
//	in   src
//	out  dst (Shape)
type Reshape struct{ Shape tensor.Shape }

// Concat concatenates tensors along a dimension.
//
//	in   1 to MaxOperands tensors, of equal shapes except for dimension Axis
//	out  dst
type Concat struct{ Axis int }

// Slice copies the range [Start, Start+Size) of a dimension. It is the gradient of Concat.
//
//	in   src
//	out  dst
type Slice struct{ Axis, Start, Size int }

// Pad is the gradient of Slice. It copies src to position Start of dimension Axis, whose extent becomes Size. The other
// elements are zero.
//
//	in   src
//	out  dst
type Pad struct{ Axis, Start, Size int }

// ReduceFunc names the function of a Reduce op.
type ReduceFunc int

// Functions of Reduce.
const (
	Sum ReduceFunc = iota
	Mean
	Maximum
	numReduce
)

func (f ReduceFunc) String() string { return [...]string{"sum", "mean", "max"}[f] }

// Reduce reduces the dimensions Axes (ascending) and removes them.
//
//	in   src
//	out  dst
type Reduce struct {
	Func ReduceFunc
	Axes []int
}

// Broadcast repeats src along the dimensions Axes of Shape, which src does not have. It is the gradient of a sum.
//
//	in   src
//	out  dst (Shape)
type Broadcast struct {
	Shape tensor.Shape
	Axes  []int // ascending
}

// Kind implements Op.
func (Reorder) Kind() string { return "reorder" }

// Kind implements Op.
func (Transpose) Kind() string { return "transpose" }

// Kind implements Op.
func (Reshape) Kind() string { return "reshape" }

// Kind implements Op.
func (Concat) Kind() string { return "concat" }

// Kind implements Op.
func (Slice) Kind() string { return "slice" }

// Kind implements Op.
func (Pad) Kind() string { return "pad" }

// Kind implements Op.
func (Reduce) Kind() string { return "reduce" }

// Kind implements Op.
func (Broadcast) Kind() string { return "broadcast" }

// Infer implements Op.
func (op Reorder) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if op.To != in[0].DType && !(op.To.IsFloat() && in[0].DType.IsFloat()) {
		return nil, fmt.Errorf("reorder: cannot convert %v to %v", in[0].DType, op.To)
	}
	return []TensorSpec{Spec(op.To, in[0].Shape...)}, nil
}

// along holds the parameters of ops that work along some dimensions.
type along struct {
	Axes        []int
	Start, Size int
}

// Parameters implements Parametric.
func (op Transpose) Parameters() any { return along{Axes: op.Perm} }

// Parameters implements Parametric.
func (op Concat) Parameters() any { return along{Axes: []int{op.Axis}} }

// Parameters implements Parametric.
func (op Slice) Parameters() any { return along{[]int{op.Axis}, op.Start, op.Size} }

// Parameters implements Parametric.
func (op Pad) Parameters() any { return along{[]int{op.Axis}, op.Start, op.Size} }

// Infer implements Op.
func (op Transpose) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	src := in[0].Shape
	sorted := slices.Sorted(slices.Values(op.Perm))
	for i, p := range sorted {
		if p != i {
			sorted = nil
			break
		}
	}
	if len(sorted) != len(src) {
		return nil, fmt.Errorf("transpose: got %v, want a permutation of the %d dimensions", op.Perm, len(src))
	}
	out := make(tensor.Shape, len(src))
	for i, p := range op.Perm {
		out[i] = src[p]
	}
	return []TensorSpec{Spec(in[0].DType, out...)}, nil
}

// Infer implements Op.
func (op Reshape) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := op.Shape.Check(); err != nil {
		return nil, fmt.Errorf("reshape: %w", err)
	}
	if in[0].Shape.Elements() != op.Shape.Elements() {
		return nil, fmt.Errorf("reshape: got %v of %d elements, want %v of %d", in[0].Shape, in[0].Shape.Elements(),
			op.Shape, op.Shape.Elements())
	}
	return []TensorSpec{Spec(in[0].DType, op.Shape...)}, nil
}

// Infer implements Op.
func (op Concat) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("concat: got no inputs, want at least 1")
	}
	if op.Axis < 0 || op.Axis >= len(in[0].Shape) {
		return nil, fmt.Errorf("concat: axis: got %d, want one of the dimensions of %v", op.Axis, in[0].Shape)
	}
	out := in[0].Shape.Clone()
	for i, s := range in[1:] {
		want := in[0].Shape.Clone()
		if len(s.Shape) == len(want) {
			want[op.Axis] = s.Shape[op.Axis]
		}
		if err := firstError(wantShape(op, fmt.Sprintf("input %d", i+1), s, want...),
			wantType(op, fmt.Sprintf("input %d", i+1), s, in[0].DType)); err != nil {
			return nil, err
		}
		out[op.Axis] += s.Shape[op.Axis]
	}
	return []TensorSpec{Spec(in[0].DType, out...)}, nil
}

// Infer implements Op.
func (op Slice) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	s := in[0].Shape
	if op.Axis < 0 || op.Axis >= len(s) || op.Start < 0 || op.Size < 1 || op.Start+op.Size > s[op.Axis] {
		return nil, fmt.Errorf("slice: [%d, %d) of dimension %d is not inside %v", op.Start, op.Start+op.Size, op.Axis,
			s)
	}
	out := s.Clone()
	out[op.Axis] = op.Size
	return []TensorSpec{Spec(in[0].DType, out...)}, nil
}

// Infer implements Op.
func (op Pad) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	s := in[0].Shape
	if op.Axis < 0 || op.Axis >= len(s) || op.Start < 0 || op.Start+s[op.Axis] > op.Size {
		return nil, fmt.Errorf("pad: %v at %d of dimension %d does not fit an extent of %d", s, op.Start, op.Axis,
			op.Size)
	}
	out := s.Clone()
	out[op.Axis] = op.Size
	return []TensorSpec{Spec(in[0].DType, out...)}, nil
}

// without returns shape without the dimensions axes, or nil if axes are not ascending dimensions of shape.
func without(shape tensor.Shape, axes []int) tensor.Shape {
	for i, a := range axes {
		if a < 0 || a >= len(shape) || (i > 0 && a <= axes[i-1]) {
			return nil
		}
	}
	out := tensor.Shape{}
	for i, d := range shape {
		if !slices.Contains(axes, i) {
			out = append(out, d)
		}
	}
	return out
}

// Infer implements Op.
func (op Reduce) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	out := without(in[0].Shape, op.Axes)
	if out == nil || op.Func < 0 || op.Func >= numReduce {
		return nil, fmt.Errorf("reduce: function %d, axes %v: want a known function and ascending dimensions of %v",
			int(op.Func), op.Axes, in[0].Shape)
	}
	return []TensorSpec{Spec(in[0].DType, out...)}, nil
}

// Infer implements Op.
func (op Broadcast) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	want := without(op.Shape, op.Axes)
	if want == nil || !want.Equal(in[0].Shape) {
		return nil, fmt.Errorf("broadcast: src: got %v, want %v without its dimensions %v", in[0].Shape, op.Shape,
			op.Axes)
	}
	return []TensorSpec{Spec(in[0].DType, op.Shape...)}, op.Shape.Check()
}
