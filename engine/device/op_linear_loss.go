package device

import "github.com/hetero-train/hetero-train/engine/tensor"

// LinearCrossEntropy is a Linear over a large vocabulary, followed by the softmax cross-entropy of its result. A device
// computes the logits in parts, so that their memory has a limit. Rows with a label < 0 are ignored.
//
// Legend: R rows, C channels, V classes.
//
//	in   src (R, C); weight (V, C), of src's type; labels (R), i32; [bias (V), f32]
//	out  loss (R), f32, 0 for ignored rows
//	     position (R), i32: top-k position of the label, from 0: number of classes with a higher score, plus
//	     lower-numbered classes with the same score; -1 for ignored rows
//	     lse (R), f32: log sum exp of the logits, 0 for ignored rows
//
// logits = src·weightᵀ + bias, in f32. A run fails if a label is V or more.
type LinearCrossEntropy struct{ Counted }

// LinearCrossEntropyDiff computes the gradients of sum(loss)·scale. It computes the logits again, and rounds their
// gradient to src's type for the products. Ignored rows have a zero gradient.
//
//	in   src (R, C); weight (V, C); labels (R), i32; lse (R), f32; scale (1), f32; [bias (V), f32]
//	out  diff_src (R, C); diff_weight (V, C), f32; [diff_bias (V), f32]
type LinearCrossEntropyDiff struct{ Counted }

// LinearCrossEntropyBoth is LinearCrossEntropy and LinearCrossEntropyDiff in one op, which computes each logit once.
// The product src·weightᵀ is rounded to src's type before the bias is added in f32. A plan uses this op, in the
// backward pass, if the device has a kernel for it, and if no other op reads the loss.
//
//	in   src (R, C); weight (V, C), of src's type; labels (R), i32; scale (1), f32; [bias (V), f32]
//	out  loss (R), f32; position (R), i32; diff_src (R, C); diff_weight (V, C), f32; [diff_bias (V), f32]
type LinearCrossEntropyBoth struct{ Counted }

// Counted holds the fraction of rows that FLOPs counts. It does not change the result of the op.
type Counted struct {
	// Fraction is the expected fraction of the rows that have a label, 0…1; 0 means all rows.
	Fraction float64
}

// of returns the number of FLOPs for the counted rows. The parameter flops is the number for all rows.
func (c Counted) of(flops int64) int64 {
	if c.Fraction == 0 {
		return flops
	}
	return int64(c.Fraction * float64(flops))
}

// Kind implements Op.
func (LinearCrossEntropy) Kind() string { return "linear_cross_entropy" }

// Kind implements Op.
func (LinearCrossEntropyDiff) Kind() string { return "linear_cross_entropy_diff" }

// Kind implements Op.
func (LinearCrossEntropyBoth) Kind() string { return "linear_cross_entropy_both" }

// checkLinearLoss checks the operands that both ops have. If the parameter bias is true, the last operand is the bias.
func checkLinearLoss(op Op, in []TensorSpec, bias bool) error {
	src, weight := in[0], in[1]
	if err := firstError(wantDims(op, "src", src, 2), wantDims(op, "weight", weight, 2),
		wantRows(op, "src", src)); err != nil {
		return err
	}
	err := firstError(wantShape(op, "weight", weight, weight.Shape[0], src.Shape[1]),
		wantType(op, "weight", weight, src.DType),
		wantShape(op, "labels", in[2], src.Shape[0]), wantType(op, "labels", in[2], tensor.I32))
	if err == nil && bias {
		b := in[len(in)-1]
		err = firstError(wantShape(op, "bias", b, weight.Shape[0]), wantType(op, "bias", b, weightType(src.DType)))
	}
	return err
}

// Parameters implements Parametric: kernels do not need the fraction.
func (Counted) Parameters() any { return struct{}{} }

// Infer implements Op.
func (op LinearCrossEntropy) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 3, 4); err != nil {
		return nil, err
	}
	if err := checkLinearLoss(op, in, len(in) == 4); err != nil {
		return nil, err
	}
	r, dt := in[0].Shape[0], weightType(in[0].DType)
	return []TensorSpec{Spec(dt, r), Spec(tensor.I32, r), Spec(dt, r)}, nil
}

// Infer implements Op.
func (op LinearCrossEntropyDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 5, 6); err != nil {
		return nil, err
	}
	if err := checkLinearLoss(op, in, len(in) == 6); err != nil {
		return nil, err
	}
	src, weight, dt := in[0], in[1], weightType(in[0].DType)
	err := firstError(wantShape(op, "lse", in[3], src.Shape[0]), wantType(op, "lse", in[3], dt),
		wantShape(op, "scale", in[4], 1), wantType(op, "scale", in[4], dt))
	out := []TensorSpec{Spec(src.DType, src.Shape...), Spec(dt, weight.Shape...)}
	if len(in) == 6 {
		out = append(out, Spec(dt, weight.Shape[0]))
	}
	return out, err
}

// Infer implements Op.
func (op LinearCrossEntropyBoth) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 4, 5); err != nil {
		return nil, err
	}
	if err := checkLinearLoss(op, in, len(in) == 5); err != nil {
		return nil, err
	}
	src, weight, dt := in[0], in[1], weightType(in[0].DType)
	err := firstError(wantShape(op, "scale", in[3], 1), wantType(op, "scale", in[3], dt))
	r := src.Shape[0]
	out := []TensorSpec{Spec(dt, r), Spec(tensor.I32, r), Spec(src.DType, src.Shape...), Spec(dt, weight.Shape...)}
	if len(in) == 5 {
		out = append(out, Spec(dt, weight.Shape[0]))
	}
	return out, err
}

// FLOPs implements Coster.
func (op LinearCrossEntropy) FLOPs(in, _ []TensorSpec) int64 {
	return op.of(2 * in[0].Shape.Elements() * int64(in[1].Shape[0]))
}

// FLOPs implements Coster. It does not count the logits that a device computes again.
func (op LinearCrossEntropyDiff) FLOPs(in, _ []TensorSpec) int64 {
	return op.of(4 * in[0].Shape.Elements() * int64(in[1].Shape[0]))
}

// FLOPs implements Coster.
func (op LinearCrossEntropyBoth) FLOPs(in, _ []TensorSpec) int64 {
	return op.of(6 * in[0].Shape.Elements() * int64(in[1].Shape[0]))
}
