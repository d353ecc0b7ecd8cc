package reference

import (
	"encoding/binary"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	add(maxPool2D[float32], maxPool2D[float64])
	add(maxPool2DDiff[float32], maxPool2DDiff[float64])
	add(avgPool2D[float32], avgPool2D[float64])
	add(avgPool2DDiff[float32], avgPool2DDiff[float64])
	add(globalAvgPool[float32], globalAvgPool[float64])
	add(globalAvgPoolDiff[float32], globalAvgPoolDiff[float64])
}

// eachWindow calls f for every window d of dst (N, C, OH, OW). taps lists the elements of src (N, C, H, W) inside the
// window, row by row, without padding.
func eachWindow(w device.Window, kernel [2]int, src, dst tensor.Shape, f func(d int, taps []int)) {
	taps := make([]int, 0, kernel[0]*kernel[1])
	for d := range int(dst.Elements()) {
		plane, oy, ox := d/(dst[2]*dst[3]), d/dst[3]%dst[2], d%dst[3]
		taps = taps[:0]
		for ky := range kernel[0] {
			for kx := range kernel[1] {
				y := oy*w.Stride[0] - w.Padding[0] + ky*w.Dilation[0]
				x := ox*w.Stride[1] - w.Padding[1] + kx*w.Dilation[1]
				if y >= 0 && y < src[2] && x >= 0 && x < src[3] {
					taps = append(taps, (plane*src[2]+y)*src[3]+x)
				}
			}
		}
		f(d, taps)
	}
}

// maxPool2D treats a NaN as the maximum, so that it is not lost.
func maxPool2D[T real](op device.MaxPool2D, in, out []operand) {
	src := load[T](in[0])
	dst := make([]T, out[0].shape().Elements())
	pixels := in[0].shape()[2] * in[0].shape()[3]
	eachWindow(op.Window, op.Kernel, in[0].shape(), out[0].shape(), func(d int, taps []int) {
		best, winner := T(math.Inf(-1)), int32(-1)
		for _, s := range taps {
			if v := src[s]; winner < 0 || v > best || v != v && best == best {
				best, winner = v, int32(s%pixels)
			}
		}
		dst[d] = best
		if op.Train {
			binary.NativeEndian.PutUint32(out[1].mem[bookkeeping.ArgmaxBytes*d:], uint32(winner))
		}
	})
	store(out[0], dst)
}

func maxPool2DDiff[T real](_ device.MaxPool2DDiff, in, out []operand) {
	diffDst := load[T](in[0])
	diffSrc := make([]T, out[0].shape().Elements())
	windows := in[0].shape()[2] * in[0].shape()[3]
	pixels := out[0].shape()[2] * out[0].shape()[3]
	for d, v := range diffDst {
		if winner := int32(binary.NativeEndian.Uint32(in[1].mem[bookkeeping.ArgmaxBytes*d:])); winner >= 0 &&
			int(winner) < pixels {
			diffSrc[d/windows*pixels+int(winner)] += v
		}
	}
	store(out[0], diffSrc)
}

// poolCount returns the divisor of a window's sum; a window entirely in the padding has the mean 0.
func poolCount(op device.AvgPool2D, taps []int) int {
	if op.CountPadding {
		return op.Kernel[0] * op.Kernel[1]
	}
	return max(len(taps), 1)
}

func avgPool2D[T real](op device.AvgPool2D, in, out []operand) {
	src := load[T](in[0])
	dst := make([]T, out[0].shape().Elements())
	eachWindow(op.Window, op.Kernel, in[0].shape(), out[0].shape(), func(d int, taps []int) {
		for _, s := range taps {
			dst[d] += src[s]
		}
		dst[d] /= T(poolCount(op, taps))
	})
	store(out[0], dst)
}

func avgPool2DDiff[T real](op device.AvgPool2DDiff, in, out []operand) {
	diffDst := load[T](in[0])
	diffSrc := make([]T, out[0].shape().Elements())
	eachWindow(op.Window, op.Kernel, out[0].shape(), in[0].shape(), func(d int, taps []int) {
		for _, s := range taps {
			diffSrc[s] += T(diffDst[d] / T(poolCount(op.AvgPool2D, taps)))
		}
	})
	store(out[0], diffSrc)
}

func globalAvgPool[T real](_ device.GlobalAvgPool, in, out []operand) {
	src := load[T](in[0])
	dst := make([]T, out[0].shape().Elements())
	pixels := in[0].shape()[2] * in[0].shape()[3]
	for i, v := range src {
		dst[i/pixels] += v
	}
	for d := range dst {
		dst[d] /= T(pixels)
	}
	store(out[0], dst)
}

func globalAvgPoolDiff[T real](_ device.GlobalAvgPoolDiff, in, out []operand) {
	diffDst := load[T](in[0])
	diffSrc := make([]T, out[0].shape().Elements())
	pixels := out[0].shape()[2] * out[0].shape()[3]
	for i := range diffSrc {
		diffSrc[i] = diffDst[i/pixels] / T(pixels)
	}
	store(out[0], diffSrc)
}
