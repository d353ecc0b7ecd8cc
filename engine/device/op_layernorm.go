package device

import "github.com/hetero-train/hetero-train/engine/tensor"

// LayerNorm normalises each row of x: dst = (x - mean)·inverse·gamma + beta, inverse = 1/sqrt(variance + Eps). variance
// is the mean of (x - mean)². With Add, x is the sum of src and residual, rounded to src's type.
//
// Legend: R is the number of rows: the product of all dimensions except the last one. C is the last dimension.
//
//	in   src (…, C); gamma (C), f32; beta (C), f32; [residual (…, C), of src's type, if Add]
//	out  dst (…, C), of src's type; mean (R), f32; inverse (R), f32; [sum (…, C): x, if Add]
type LayerNorm struct {
	Eps float64
	Add bool
}

// LayerNormDiff computes the gradients of a LayerNorm. The gradient of x is also the gradient of src and of residual.
//
//	in   diff_dst (…, C); x (…, C); mean (R), f32; inverse (R), f32; gamma (C), f32
//	     [diff_sum (…, C): gradient of x from its other readers, if Plus]
//	out  diff_x (…, C), plus diff_sum; diff_gamma (C), f32; diff_beta (C), f32
type LayerNormDiff struct{ Plus bool }

// Kind implements Op.
func (LayerNorm) Kind() string { return "layer_norm" }

// Kind implements Op.
func (LayerNormDiff) Kind() string { return "layer_norm_diff" }

// rowsOf returns the number of rows of a shape of at least one dimension.
func rowsOf(s tensor.Shape) int { return int(s[:len(s)-1].Elements()) }

// wantRows checks that an operand has at least one dimension, and is of a float type.
func wantRows(op Op, name string, got TensorSpec) error {
	if len(got.Shape) == 0 {
		return wantDims(op, name, got, 1)
	}
	return wantType(op, name, got, tensor.F32, tensor.F64, tensor.BF16, tensor.F16)
}

// Infer implements Op.
func (op LayerNorm) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 3
	if op.Add {
		want++
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	src := in[0]
	if err := wantRows(op, "src", src); err != nil {
		return nil, err
	}
	c, dt := src.Shape[len(src.Shape)-1], weightType(src.DType)
	err := firstError(wantShape(op, "gamma", in[1], c), wantType(op, "gamma", in[1], dt),
		wantShape(op, "beta", in[2], c), wantType(op, "beta", in[2], dt))
	if err == nil && op.Add {
		err = firstError(sameAs(op, "residual", in[3], src))
	}
	rows := rowsOf(src.Shape)
	out := []TensorSpec{Spec(src.DType, src.Shape...), Spec(dt, rows), Spec(dt, rows)}
	if op.Add {
		out = append(out, Spec(src.DType, src.Shape...))
	}
	return out, err
}

// Infer implements Op.
func (op LayerNormDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 5
	if op.Plus {
		want++
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	diff := in[0]
	if err := wantRows(op, "diff_dst", diff); err != nil {
		return nil, err
	}
	c, dt, rows := diff.Shape[len(diff.Shape)-1], weightType(diff.DType), rowsOf(diff.Shape)
	err := firstError(sameAs(op, "x", in[1], diff), wantShape(op, "mean", in[2], rows), wantType(op, "mean", in[2], dt),
		wantShape(op, "inverse", in[3], rows), wantType(op, "inverse", in[3], dt),
		wantShape(op, "gamma", in[4], c), wantType(op, "gamma", in[4], dt))
	if err == nil && op.Plus {
		err = sameAs(op, "diff_sum", in[5], diff)
	}
	return []TensorSpec{Spec(diff.DType, diff.Shape...), Spec(dt, c), Spec(dt, c)}, err
}

// FLOPs implements Coster.
func (LayerNorm) FLOPs(in, _ []TensorSpec) int64 { return 8 * in[0].Shape.Elements() }

// FLOPs implements Coster.
func (LayerNormDiff) FLOPs(in, _ []TensorSpec) int64 { return 14 * in[0].Shape.Elements() }
