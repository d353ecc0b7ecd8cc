package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// SoftmaxCrossEntropy computes the loss of each sample, -sum_k q_k·log softmax(logits)_k with q =
// (1-LabelSmoothing)·one_hot(label) + LabelSmoothing/C. A sample with a label < 0 is ignored: loss 0, position -1.
//
// Mixed samples (mixup, cutmix) have two labels. With lambda in 0…1, lambda·one_hot(label) + (1-lambda)·one_hot(second)
// replaces one_hot(label) in q. The output position then belongs to the label with the larger weight or, if the weights
// are equal, to the first label. If the first label is ignored, second is not read; otherwise second must be a class.
//
//	in   logits (N, C); labels (N), i32; Mixed: second (N), i32; lambda (N), f32
//	out  loss (N), f32
//	     position (N), i32: top-k position of the label, from 0: number of classes with a higher score, plus
//	     lower-numbered classes with the same score; the label is in the top k if position < k; undefined if the loss is NaN
//	     lse (N), f32: log sum exp, kept for the gradient
type SoftmaxCrossEntropy struct {
	LabelSmoothing float64
	Mixed          bool
}

// SoftmaxCrossEntropyDiff computes (softmax - q)·scale, with zero rows for ignored labels. scale is the loss scale
// divided by the number of samples of the global batch.
//
//	in   logits (N, C); labels (N), i32; lse (N), f32; scale (1), f32; Mixed: second (N), i32; lambda (N), f32
//	out  diff_logits (N, C)
type SoftmaxCrossEntropyDiff struct {
	LabelSmoothing float64
	Mixed          bool
}

// ImageNormalize converts bytes to network input: dst = src·a + b, a = 1/(255·Std), b = -Mean/Std, in f32. The product
// is rounded before the sum.
//
//	in   src (N, H, W, C), u8
//	out  dst (N, C, H, W), of type To
type ImageNormalize struct {
	Mean, Std []float32 // one per channel, for values in 0…1
	To        tensor.DType
}

// Kind implements Op.
func (SoftmaxCrossEntropy) Kind() string { return "softmax_cross_entropy" }

// Kind implements Op.
func (SoftmaxCrossEntropyDiff) Kind() string { return "softmax_cross_entropy_diff" }

// Kind implements Op.
func (ImageNormalize) Kind() string { return "image_normalize" }

// checkClassified checks the operands that both ops have. The operands of mixed samples are last.
func checkClassified(op Op, in []TensorSpec, smoothing float64, mixed bool) error {
	if !(smoothing >= 0 && smoothing < 1) {
		return fmt.Errorf("%s: label smoothing: got %g, want 0 <= s < 1", op.Kind(), smoothing)
	}
	if err := wantDims(op, "logits", in[0], 2); err != nil {
		return err
	}
	n := in[0].Shape[0]
	err := firstError(wantShape(op, "labels", in[1], n), wantType(op, "labels", in[1], tensor.I32))
	if err != nil || !mixed {
		return err
	}
	second, lambda := in[len(in)-2], in[len(in)-1]
	return firstError(wantShape(op, "second labels", second, n), wantType(op, "second labels", second, tensor.I32),
		wantShape(op, "lambda", lambda, n), wantType(op, "lambda", lambda, weightType(in[0].DType)))
}

// mixedOperands returns the number of additional operands for mixed samples.
func mixedOperands(mixed bool) int {
	if mixed {
		return 2
	}
	return 0
}

// Infer implements Op.
func (op SoftmaxCrossEntropy) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2+mixedOperands(op.Mixed)); err != nil {
		return nil, err
	}
	if err := checkClassified(op, in, op.LabelSmoothing, op.Mixed); err != nil {
		return nil, err
	}
	n, dt := in[0].Shape[0], weightType(in[0].DType)
	return []TensorSpec{Spec(dt, n), Spec(tensor.I32, n), Spec(dt, n)}, nil
}

// Infer implements Op.
func (op SoftmaxCrossEntropyDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 4+mixedOperands(op.Mixed)); err != nil {
		return nil, err
	}
	err := firstError(checkClassified(op, in, op.LabelSmoothing, op.Mixed), wantShape(op, "lse", in[2], in[0].Shape[0]),
		wantShape(op, "scale", in[3], 1))
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, err
}

// Parameters implements Parametric.
func (op ImageNormalize) Parameters() any {
	return struct {
		ImageNormalize
		Channels int
	}{op, len(op.Mean)}
}

// Infer implements Op.
func (op ImageNormalize) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := firstError(wantDims(op, "src", in[0], 4), wantType(op, "src", in[0], tensor.U8)); err != nil {
		return nil, err
	}
	s := in[0].Shape
	if len(op.Mean) != s[3] || len(op.Std) != s[3] {
		return nil, fmt.Errorf("image_normalize: got %d means and %d deviations, want %d of each", len(op.Mean),
			len(op.Std), s[3])
	}
	if !op.To.IsFloat() {
		return nil, fmt.Errorf("image_normalize: got element type %v, want a float", op.To)
	}
	return []TensorSpec{Spec(op.To, s[0], s[3], s[1], s[2])}, nil
}
