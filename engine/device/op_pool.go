package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// MaxPool2D computes the maximum of each window. Elements of the padding are never the maximum.
//
//	in   src (N, C, H, W)
//	out  dst (N, C, OH, OW); [argmax, opaque] if Train
type MaxPool2D struct {
	Window
	Kernel [2]int
	Train  bool
}

// MaxPool2DDiff adds each gradient to the pixel that was the maximum of its window. Among equal pixels, this is the
// first one, row by row.
//
//	in   diff_dst (N, C, OH, OW); argmax
//	out  diff_src (N, C, Height, Width)
type MaxPool2DDiff struct {
	MaxPool2D
	Height, Width int
}

// AvgPool2D computes the mean of each window. If CountPadding is set, the divisor is the size of the whole window, also
// at the edges.
//
//	in   src (N, C, H, W)
//	out  dst (N, C, OH, OW)
type AvgPool2D struct {
	Window
	Kernel       [2]int
	CountPadding bool
}

// AvgPool2DDiff distributes each gradient over its window.
//
//	in   diff_dst (N, C, OH, OW)
//	out  diff_src (N, C, Height, Width)
type AvgPool2DDiff struct {
	AvgPool2D
	Height, Width int
}

// GlobalAvgPool computes the mean of each channel of each image.
//
//	in   src (N, C, H, W)
//	out  dst (N, C)
type GlobalAvgPool struct{}

// GlobalAvgPoolDiff distributes each gradient over its channel of the image.
//
//	in   diff_dst (N, C)
//	out  diff_src (N, C, Height, Width)
type GlobalAvgPoolDiff struct{ Height, Width int }

// Kind implements Op.
func (MaxPool2D) Kind() string { return "max_pool2d" }

// Kind implements Op.
func (MaxPool2DDiff) Kind() string { return "max_pool2d_diff" }

// Kind implements Op.
func (AvgPool2D) Kind() string { return "avg_pool2d" }

// Kind implements Op.
func (AvgPool2DDiff) Kind() string { return "avg_pool2d_diff" }

// Kind implements Op.
func (GlobalAvgPool) Kind() string { return "global_avg_pool" }

// Kind implements Op.
func (GlobalAvgPoolDiff) Kind() string { return "global_avg_pool_diff" }

func (w Window) pooled(op Op, in []TensorSpec, kernel [2]int) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	src := in[0]
	if err := wantDims(op, "src", src, 4); err != nil {
		return nil, err
	}
	if err := w.check(op, src.Shape, kernel); err != nil {
		return nil, err
	}
	for d := range 2 {
		if 2*w.Padding[d] > kernel[d] {
			return nil, fmt.Errorf("%s: padding %v: want at most half of the kernel %v", op.Kind(), w.Padding, kernel)
		}
	}
	return []TensorSpec{Spec(src.DType, src.Shape[0], src.Shape[1],
		w.outExtent(0, src.Shape[2], kernel[0]), w.outExtent(1, src.Shape[3], kernel[1]))}, nil
}

// Infer implements Op.
func (op MaxPool2D) Infer(in []TensorSpec) ([]TensorSpec, error) {
	out, err := op.pooled(op, in, op.Kernel)
	if err == nil && op.Train {
		out = append(out, TensorSpec{DType: tensor.Opaque})
	}
	return out, err
}

// Infer implements Op.
func (op AvgPool2D) Infer(in []TensorSpec) ([]TensorSpec, error) { return op.pooled(op, in, op.Kernel) }

// unpooled returns the spec of diff_src, of height h and width w. It returns an error unless the forward op gives an
// output of the shape of diff.
func unpooled(op, forward Op, diff TensorSpec, h, w int) ([]TensorSpec, error) {
	if err := wantDims(op, "diff_dst", diff, 4); err != nil {
		return nil, err
	}
	src := Spec(diff.DType, diff.Shape[0], diff.Shape[1], h, w)
	dst, err := forward.Infer([]TensorSpec{src})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Kind(), err)
	}
	return []TensorSpec{src}, wantShape(op, "diff_dst", diff, dst[0].Shape...)
}

// Infer implements Op.
func (op MaxPool2DDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	if err := wantType(op, "argmax", in[1], tensor.Opaque); err != nil {
		return nil, err
	}
	return unpooled(op, op.MaxPool2D, in[0], op.Height, op.Width)
}

// Infer implements Op.
func (op AvgPool2DDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	return unpooled(op, op.AvgPool2D, in[0], op.Height, op.Width)
}

// Infer implements Op.
func (op GlobalAvgPool) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := wantDims(op, "src", in[0], 4); err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape[:2]...)}, nil
}

// Infer implements Op.
func (op GlobalAvgPoolDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := wantDims(op, "diff_dst", in[0], 2); err != nil {
		return nil, err
	}
	out := Spec(in[0].DType, in[0].Shape[0], in[0].Shape[1], op.Height, op.Width)
	return []TensorSpec{out}, out.Shape.Check()
}
