package device

import "fmt"

// BiasGELU adds a bias to each row and applies GELU (erf) or GELUTanh. The sum is not rounded before GELU is applied.
//
//	in   src (…, C); bias (C), f32
//	out  dst (…, C), of src's type
type BiasGELU struct{ Func UnaryFunc }

// BiasGELUDiff computes the gradients of BiasGELU.
//
//	in   diff_dst (…, C); src (…, C); bias (C), f32
//	out  diff_src (…, C); diff_bias (C), f32: the sum over rows of the unrounded diff_src
type BiasGELUDiff struct{ Func UnaryFunc }

// Kind implements Op.
func (BiasGELU) Kind() string { return "bias_gelu" }

// Kind implements Op.
func (BiasGELUDiff) Kind() string { return "bias_gelu_diff" }

func checkGELU(op Op, f UnaryFunc, src, bias TensorSpec) error {
	if f != GELU && f != GELUTanh {
		return fmt.Errorf("%s: got function %d, want %v or %v", op.Kind(), int(f), GELU, GELUTanh)
	}
	if err := wantRows(op, "src", src); err != nil {
		return err
	}
	return firstError(wantShape(op, "bias", bias, src.Shape[len(src.Shape)-1]),
		wantType(op, "bias", bias, weightType(src.DType)))
}

// Infer implements Op.
func (op BiasGELU) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, checkGELU(op, op.Func, in[0], in[1])
}

// Infer implements Op.
func (op BiasGELUDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 3); err != nil {
		return nil, err
	}
	if err := firstError(checkGELU(op, op.Func, in[1], in[2]), sameAs(op, "src", in[1], in[0])); err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...), Spec(in[2].DType, in[2].Shape...)}, nil
}
