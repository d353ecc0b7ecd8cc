package device

import "github.com/hetero-train/hetero-train/engine/tensor"

// Linear computes dst = src · weightᵀ + bias, for N rows, I inputs and O outputs. A device may round the bias to the
// type of dst before it adds the bias.
//
//	in   src (N, I); weight (O, I), of src's type; [bias (O), f32] if given
//	out  dst (N, O), of type To
type Linear struct {
	To tensor.DType // type of dst; Invalid: the type of src
}

// LinearDiffSrc computes the gradient of Linear's src.
//
//	in   diff_dst (N, O); weight (O, I)
//	out  diff_src (N, I), of the weight's type
type LinearDiffSrc struct{}

// LinearDiffWeights computes the gradient of Linear's parameters.
//
//	in   src (N, I); diff_dst (N, O)
//	out  diff_weight (O, I), f32; [diff_bias (O), f32] if Bias
type LinearDiffWeights struct{ Bias bool }

// Kind implements Op.
func (Linear) Kind() string { return "linear" }

// Kind implements Op.
func (LinearDiffSrc) Kind() string { return "linear_diff_src" }

// Kind implements Op.
func (LinearDiffWeights) Kind() string { return "linear_diff_weights" }

// Infer implements Op.
func (op Linear) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2, 3); err != nil {
		return nil, err
	}
	src, w := in[0], in[1]
	if err := firstError(wantDims(op, "src", src, 2), wantDims(op, "weight", w, 2),
		wantType(op, "weight", w, src.DType)); err != nil {
		return nil, err
	}
	if err := wantShape(op, "weight", w, w.Shape[0], src.Shape[1]); err != nil {
		return nil, err
	}
	if len(in) == 3 {
		if err := firstError(wantShape(op, "bias", in[2], w.Shape[0]),
			wantType(op, "bias", in[2], weightType(src.DType))); err != nil {
			return nil, err
		}
	}
	to := op.To
	if to == tensor.Invalid {
		to = src.DType
	}
	return []TensorSpec{Spec(to, src.Shape[0], w.Shape[0])}, nil
}

// Infer implements Op.
func (op LinearDiffSrc) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	diff, w := in[0], in[1]
	if err := firstError(wantDims(op, "diff_dst", diff, 2), wantDims(op, "weight", w, 2)); err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(w.DType, diff.Shape[0], w.Shape[1])},
		wantShape(op, "diff_dst", diff, diff.Shape[0], w.Shape[0])
}

// Infer implements Op.
func (op LinearDiffWeights) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	src, diff := in[0], in[1]
	if err := firstError(wantDims(op, "src", src, 2), wantDims(op, "diff_dst", diff, 2)); err != nil {
		return nil, err
	}
	dt := weightType(src.DType)
	out := []TensorSpec{Spec(dt, diff.Shape[1], src.Shape[1])}
	if op.Bias {
		out = append(out, Spec(dt, diff.Shape[1]))
	}
	return out, wantShape(op, "diff_dst", diff, src.Shape[0], diff.Shape[1])
}

// FLOPs implements Coster.
func (Linear) FLOPs(in, _ []TensorSpec) int64 {
	return 2 * in[0].Shape.Elements() * int64(in[1].Shape[0])
}

// FLOPs implements Coster.
func (LinearDiffSrc) FLOPs(in, _ []TensorSpec) int64 {
	return 2 * in[0].Shape.Elements() * int64(in[1].Shape[1])
}

// FLOPs implements Coster.
func (LinearDiffWeights) FLOPs(in, _ []TensorSpec) int64 {
	return 2 * in[0].Shape.Elements() * int64(in[1].Shape[1])
}
