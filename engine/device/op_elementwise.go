package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// UnaryFunc names the function of a Unary op.
type UnaryFunc int

// Functions of Unary. GELU is exact (erf); GELUTanh is the approximation of GPT-2.
const (
	ReLU UnaryFunc = iota
	Sigmoid
	Tanh
	GELU
	GELUTanh
	Exp
	Log
	Sqrt
	Square
	Neg
	Abs
	numUnary
)

// BinaryFunc names the function of a Binary op.
type BinaryFunc int

// Functions of Binary.
const (
	Add BinaryFunc = iota
	Sub
	Mul
	Div
	Max
	Min
	numBinary
)

var unaryNames = [numUnary]string{"relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "exp", "log", "sqrt", "square", "neg",
	"abs"}
var binaryNames = [numBinary]string{"add", "sub", "mul", "div", "max", "min"}

func (f UnaryFunc) String() string  { return unaryNames[f] }
func (f BinaryFunc) String() string { return binaryNames[f] }

// Unary applies a function to each element.
//
//	in   src, any shape
//	out  dst, of src's shape and type
type Unary struct{ Func UnaryFunc }

// UnaryDiff computes the gradient of Unary. The derivatives of ReLU and Abs at 0 are 0.
//
//	in   diff_dst; src
//	out  diff_src
//
// For ReLU, src may be the forward dst, because both have the same sign pattern.
type UnaryDiff struct{ Func UnaryFunc }

// Binary combines two tensors element by element. b is broadcast to the shape of a: extents of b may be 1, and leading
// dimensions may be missing.
//
//	in   a; b, of a's type
//	out  dst, of a's shape and type
type Binary struct{ Func BinaryFunc }

// Scale multiplies by a factor in device memory.
//
//	in   src; factor (1), f32 (f64 if src is f64)
//	out  dst
type Scale struct{}

// Fill sets every element to the same value.
//
//	in   nothing
//	out  dst
type Fill struct {
	DType tensor.DType
	Shape tensor.Shape
	Value float64
}

// Dropout zeroes elements with probability P and scales the others by 1/(1-P). The mask depends only on (key, Stream,
// sample id, position in the sample). An element uses word position%4 of Philox4x32-10 with key (key[0], key[1]) and
// counter (position/4, Stream, low half of the id, high half of the id). An element is kept if this word is at least
// round(P·2³²). position is the row-major index of the element within the sample. The gradient is the same op, applied
// to the gradient of dst.
//
//	in   src (N, …); ids (N), i64; key (2), u32
//	out  dst
type Dropout struct {
	P      float64 // 0 <= P < 1
	Stream uint32  // a different number for each dropout layer of a model
}

// Kind implements Op.
func (op Unary) Kind() string { return "unary" }

// Kind implements Op.
func (op UnaryDiff) Kind() string { return "unary_diff" }

// Kind implements Op.
func (op Binary) Kind() string { return "binary" }

// Kind implements Op.
func (Scale) Kind() string { return "scale" }

// Kind implements Op.
func (Fill) Kind() string { return "fill" }

// Kind implements Op.
func (Dropout) Kind() string { return "dropout" }

// Infer implements Op.
func (op Unary) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if op.Func < 0 || op.Func >= numUnary {
		return nil, fmt.Errorf("unary: unknown function %d", int(op.Func))
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, nil
}

// Infer implements Op.
func (op UnaryDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	if op.Func < 0 || op.Func >= numUnary {
		return nil, fmt.Errorf("unary_diff: unknown function %d", int(op.Func))
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, sameAs(op, "src", in[1], in[0])
}

// Infer implements Op.
func (op Binary) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	if op.Func < 0 || op.Func >= numBinary {
		return nil, fmt.Errorf("binary: unknown function %d", int(op.Func))
	}
	a, b := in[0], in[1]
	if err := wantType(op, "b", b, a.DType); err != nil {
		return nil, err
	}
	if !broadcasts(a.Shape, b.Shape) {
		return nil, fmt.Errorf("binary %v: b: shape %v cannot be broadcast to %v", op.Func, b.Shape, a.Shape)
	}
	return []TensorSpec{Spec(a.DType, a.Shape...)}, nil
}

// broadcasts reports whether b can be broadcast to a's shape.
func broadcasts(a, b tensor.Shape) bool {
	if len(b) > len(a) {
		return false
	}
	for i, d := range b {
		if full := a[len(a)-len(b)+i]; d != full && d != 1 {
			return false
		}
	}
	return true
}

// Infer implements Op.
func (op Scale) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	err := firstError(wantShape(op, "factor", in[1], 1), wantType(op, "factor", in[1], weightType(in[0].DType)))
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, err
}

// Infer implements Op.
func (op Fill) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 0); err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(op.DType, op.Shape...)}, op.Shape.Check()
}

// Infer implements Op.
func (op Dropout) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 3); err != nil {
		return nil, err
	}
	if !(op.P >= 0 && op.P < 1) {
		return nil, fmt.Errorf("dropout: probability: got %g, want 0 <= p < 1", op.P)
	}
	if len(in[0].Shape) == 0 {
		return nil, fmt.Errorf("dropout: src: got a scalar, want samples")
	}
	err := firstError(wantShape(op, "ids", in[1], in[0].Shape[0]), wantType(op, "ids", in[1], tensor.I64),
		wantShape(op, "key", in[2], 2), wantType(op, "key", in[2], tensor.U32))
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, err
}
