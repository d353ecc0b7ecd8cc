package reference

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	add(conv2D[float32], conv2D[float64])
	add(conv2DDiffSrc[float32], conv2DDiffSrc[float64])
	add(conv2DDiffWeights[float32], conv2DDiffWeights[float64])
}

// products are the n products of a convolution for one weight and one row of dst: dst[d+i] += src[s+i·step]·weight[w]
// for i < n.
type products struct{ s, step, w, d, n int }

// eachProduct calls f once for all products of a convolution. Both gradients are sums over the same products, so one
// loop nest serves all three ops. For each element of dst, its products come in the order of the weights. If backwards
// is set, the products of each element of src come in the order of dst instead. For each element of weight, the
// products always come in the order of dst.
//
//	src (N, C, H, W)   weight (O, C/Groups, KH, KW)   dst (N, O, OH, OW)
func eachProduct(op device.Conv2D, src, weight, dst tensor.Shape, backwards bool, f func(products)) {
	perGroup, taps, kw := weight[1], weight[2]*weight[3], weight[3]
	for plane := range dst[0] * dst[1] {
		n, o := plane/dst[1], plane%dst[1]
		firstChannel := o / (dst[1] / op.Groups) * perGroup
		for c := range perGroup {
			from := (n*src[1] + firstChannel + c) * src[2] * src[3]
			for t := range taps {
				tap := t
				if backwards {
					tap = taps - 1 - t
				}
				top := tap/kw*op.Dilation[0] - op.Padding[0]
				left := tap%kw*op.Dilation[1] - op.Padding[1]
				first, end := inside(left, op.Stride[1], src[3], dst[3])
				if first >= end {
					continue
				}
				for oy, last := inside(top, op.Stride[0], src[2], dst[2]); oy < last; oy++ {
					f(products{s: from + (top+oy*op.Stride[0])*src[3] + left + first*op.Stride[1], step: op.Stride[1],
						w: (o*perGroup+c)*taps + tap, d: (plane*dst[2]+oy)*dst[3] + first, n: end - first})
				}
			}
		}
	}
}

// inside returns the range of i in [0, count) for which start + i·stride is in [0, size).
func inside(start, stride, size, count int) (first, end int) {
	if start < 0 {
		first = (stride - 1 - start) / stride
	}
	if start < size {
		end = min(count, (size-1-start)/stride+1)
	}
	return first, end
}

func conv2D[T real](op device.Conv2D, in, out []operand) {
	src, weight := load[T](in[0]), load[T](in[1])
	dst := make([]T, out[0].shape().Elements())
	eachProduct(op, in[0].shape(), in[1].shape(), out[0].shape(), false, func(p products) {
		w, s := weight[p.w], p.s
		for d := p.d; d < p.d+p.n; d++ {
			dst[d] += T(src[s] * w)
			s += p.step
		}
	})
	if len(in) == 3 {
		bias := load[T](in[2])
		pixels := out[0].shape()[2] * out[0].shape()[3]
		for i := range dst {
			dst[i] += bias[i/pixels%len(bias)]
		}
	}
	store(out[0], dst)
}

func conv2DDiffSrc[T real](op device.Conv2DDiffSrc, in, out []operand) {
	diffDst, weight := load[T](in[0]), load[T](in[1])
	diffSrc := make([]T, out[0].shape().Elements())
	eachProduct(op.Conv2D, out[0].shape(), in[1].shape(), in[0].shape(), true, func(p products) {
		w, s := weight[p.w], p.s
		for d := p.d; d < p.d+p.n; d++ {
			diffSrc[s] += T(diffDst[d] * w)
			s += p.step
		}
	})
	store(out[0], diffSrc)
}

func conv2DDiffWeights[T real](op device.Conv2DDiffWeights, in, out []operand) {
	src, diffDst := load[T](in[0]), load[T](in[1])
	diffWeight := make([]T, out[0].shape().Elements())
	eachProduct(op.Conv2D, in[0].shape(), out[0].shape(), in[1].shape(), false, func(p products) {
		sum, s := diffWeight[p.w], p.s
		for d := p.d; d < p.d+p.n; d++ {
			sum += T(src[s] * diffDst[d])
			s += p.step
		}
		diffWeight[p.w] = sum
	})
	store(out[0], diffWeight)
	if op.Bias {
		diffBias := make([]T, out[1].shape().Elements())
		pixels := in[1].shape()[2] * in[1].shape()[3]
		for i, v := range diffDst {
			diffBias[i/pixels%len(diffBias)] += v
		}
		store(out[1], diffBias)
	}
}
