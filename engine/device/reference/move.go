package reference

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	add(reorder[float32], reorder[float64])
	add(transpose, transpose)
	add(concat, concat)
	add(slice, slice)
	add(pad, pad)
	add(broadcast, broadcast)
	add(reduce[float32], reduce[float64])
	add(reshape, reshape)
}

func reorder[T real](_ device.Reorder, in, out []operand) {
	if in[0].spec.DType == out[0].spec.DType {
		copy(out[0].mem, in[0].mem)
		return
	}
	store(out[0], load[T](in[0]))
}

func transpose(op device.Transpose, in, out []operand) {
	from := rowMajor(in[0].shape())
	strides := make([]int, len(from))
	for i, p := range op.Perm {
		strides[i] = from[p]
	}
	for i, j := range offsets(out[0].shape(), strides, 0) {
		copyElement(out[0], i, in[0], j)
	}
}

func concat(op device.Concat, in, out []operand) {
	strides := rowMajor(out[0].shape())
	start := 0
	for _, src := range in {
		for j, i := range offsets(src.shape(), strides, start*strides[op.Axis]) {
			copyElement(out[0], i, src, j)
		}
		start += src.shape()[op.Axis]
	}
}

func slice(op device.Slice, in, out []operand) {
	strides := rowMajor(in[0].shape())
	for i, j := range offsets(out[0].shape(), strides, op.Start*strides[op.Axis]) {
		copyElement(out[0], i, in[0], j)
	}
}

func pad(op device.Pad, in, out []operand) {
	clear(out[0].mem)
	strides := rowMajor(out[0].shape())
	for j, i := range offsets(in[0].shape(), strides, op.Start*strides[op.Axis]) {
		copyElement(out[0], i, in[0], j)
	}
}

// keptStrides returns the strides of a tensor that has the dimensions of full except axes. The result has one stride
// per dimension of full, which is 0 for the dimensions in axes.
func keptStrides(full tensor.Shape, axes []int) []int {
	strides := make([]int, len(full))
	step := 1
	for d := len(full) - 1; d >= 0; d-- {
		if !slices.Contains(axes, d) {
			strides[d] = step
			step *= full[d]
		}
	}
	return strides
}

func broadcast(op device.Broadcast, in, out []operand) {
	for i, j := range offsets(op.Shape, keptStrides(op.Shape, op.Axes), 0) {
		copyElement(out[0], i, in[0], j)
	}
}

func reduce[T real](op device.Reduce, in, out []operand) {
	src := load[T](in[0])
	dst := make([]T, out[0].shape().Elements())
	if op.Func == device.Maximum {
		for d := range dst {
			dst[d] = T(math.Inf(-1))
		}
	}
	for s, d := range offsets(in[0].shape(), keptStrides(in[0].shape(), op.Axes), 0) {
		if op.Func == device.Maximum {
			dst[d] = max(dst[d], src[s])
		} else {
			dst[d] += src[s]
		}
	}
	if op.Func == device.Mean {
		for d := range dst {
			dst[d] /= T(len(src) / len(dst))
		}
	}
	store(out[0], dst)
}

func reshape(_ device.Reshape, in, out []operand) { copy(out[0].mem, in[0].mem) }
