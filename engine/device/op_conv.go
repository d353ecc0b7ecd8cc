package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Window is the geometry of a convolution or pooling. Each field holds the values for height and width.
type Window struct {
	Stride   [2]int // >= 1
	Padding  [2]int // number of padding elements on each side, >= 0
	Dilation [2]int // distance between taps, >= 1
}

// outExtent returns the number of window positions along dimension d.
func (w Window) outExtent(d, in, kernel int) int {
	return (in+2*w.Padding[d]-w.Dilation[d]*(kernel-1)-1)/w.Stride[d] + 1
}

func (w Window) check(op Op, in tensor.Shape, kernel [2]int) error {
	for d := range 2 {
		if w.Stride[d] < 1 || w.Dilation[d] < 1 || w.Padding[d] < 0 || kernel[d] < 1 {
			return fmt.Errorf("%s: kernel %v, stride %v, padding %v, dilation %v: want a padding of at least 0, and all other values positive",
				op.Kind(), kernel, w.Stride, w.Padding, w.Dilation)
		}
		if in[2+d]+2*w.Padding[d] < w.Dilation[d]*(kernel[d]-1)+1 {
			return fmt.Errorf("%s: kernel %v with dilation %v is larger than the padded input %v", op.Kind(), kernel,
				w.Dilation, in)
		}
	}
	return nil
}

// Conv2D is the convolution (cross-correlation) of images.
//
//	in   src (N, C, H, W); weight (O, C/Groups, KH, KW), of src's type; [bias (O), f32] if given
//	out  dst (N, O, OH, OW), of src's type
type Conv2D struct {
	Window
	Groups int // >= 1, divides C and O
}

// Conv2DDiffSrc computes the gradient of Conv2D's src.
//
//	in   diff_dst (N, O, OH, OW); weight (O, C/Groups, KH, KW)
//	out  diff_src (N, C, H, W)
type Conv2DDiffSrc struct {
	Conv2D
	Height, Width int // size of src, which cannot be derived from OH and OW
}

// Conv2DDiffWeights computes the gradient of Conv2D's parameters.
//
//	in   src (N, C, H, W); diff_dst (N, O, OH, OW)
//	out  diff_weight (O, C/Groups, KH, KW), f32; [diff_bias (O), f32] if Bias
type Conv2DDiffWeights struct {
	Conv2D
	Kernel [2]int
	Bias   bool
}

// Kind implements Op.
func (Conv2D) Kind() string { return "conv2d" }

// Kind implements Op.
func (Conv2DDiffSrc) Kind() string { return "conv2d_diff_src" }

// Kind implements Op.
func (Conv2DDiffWeights) Kind() string { return "conv2d_diff_weights" }

// Infer implements Op.
func (op Conv2D) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2, 3); err != nil {
		return nil, err
	}
	src, w := in[0], in[1]
	if err := firstError(wantDims(op, "src", src, 4), wantDims(op, "weight", w, 4),
		wantType(op, "weight", w, src.DType)); err != nil {
		return nil, err
	}
	c, o := src.Shape[1], w.Shape[0]
	if op.Groups < 1 || c%op.Groups != 0 || o%op.Groups != 0 {
		return nil, fmt.Errorf("conv2d: groups: got %d, want a divisor of the %d input and %d output channels",
			op.Groups, c, o)
	}
	kernel := [2]int{w.Shape[2], w.Shape[3]}
	if err := firstError(wantShape(op, "weight", w, o, c/op.Groups, kernel[0], kernel[1]),
		op.check(op, src.Shape, kernel)); err != nil {
		return nil, err
	}
	if len(in) == 3 {
		if err := firstError(wantShape(op, "bias", in[2], o),
			wantType(op, "bias", in[2], weightType(src.DType))); err != nil {
			return nil, err
		}
	}
	return []TensorSpec{Spec(src.DType, src.Shape[0], o, op.outExtent(0, src.Shape[2], kernel[0]),
		op.outExtent(1, src.Shape[3], kernel[1]))}, nil
}

// Infer implements Op.
func (op Conv2DDiffSrc) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	diff, w := in[0], in[1]
	if err := firstError(wantDims(op, "diff_dst", diff, 4), wantDims(op, "weight", w, 4)); err != nil {
		return nil, err
	}
	src := Spec(diff.DType, diff.Shape[0], w.Shape[1]*op.Groups, op.Height, op.Width)
	dst, err := op.Conv2D.Infer([]TensorSpec{src, w})
	if err != nil {
		return nil, fmt.Errorf("conv2d_diff_src: %w", err)
	}
	return []TensorSpec{src}, wantShape(op, "diff_dst", diff, dst[0].Shape...)
}

// Infer implements Op.
func (op Conv2DDiffWeights) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	src, diff := in[0], in[1]
	if err := firstError(wantDims(op, "src", src, 4), wantDims(op, "diff_dst", diff, 4),
		wantType(op, "diff_dst", diff, src.DType)); err != nil {
		return nil, err
	}
	if op.Groups < 1 || src.Shape[1]%op.Groups != 0 {
		return nil, fmt.Errorf("conv2d_diff_weights: groups: got %d, want a divisor of the %d input channels",
			op.Groups, src.Shape[1])
	}
	w := Spec(src.DType, diff.Shape[1], src.Shape[1]/op.Groups, op.Kernel[0], op.Kernel[1])
	dst, err := op.Conv2D.Infer([]TensorSpec{src, w})
	if err != nil {
		return nil, fmt.Errorf("conv2d_diff_weights: %w", err)
	}
	w.DType = weightType(src.DType)
	out := []TensorSpec{w}
	if op.Bias {
		out = append(out, Spec(w.DType, diff.Shape[1]))
	}
	return out, wantShape(op, "diff_dst", diff, dst[0].Shape...)
}

// convFLOPs returns the number of FLOPs of the forward pass, which is also that of each gradient. It counts a
// multiply-add as 2, and also counts taps in the padding.
func convFLOPs(dst, weight tensor.Shape) int64 {
	return 2 * dst.Elements() * weight[1:].Elements()
}

// FLOPs implements Coster.
func (Conv2D) FLOPs(in, out []TensorSpec) int64 { return convFLOPs(out[0].Shape, in[1].Shape) }

// FLOPs implements Coster.
func (Conv2DDiffSrc) FLOPs(in, _ []TensorSpec) int64 { return convFLOPs(in[0].Shape, in[1].Shape) }

// FLOPs implements Coster.
func (Conv2DDiffWeights) FLOPs(in, out []TensorSpec) int64 {
	return convFLOPs(in[1].Shape, out[0].Shape)
}
