package reference

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// eachTap calls f once for every product of a convolution: dst[d] += src[s]·weight[w]. Both gradients are sums over the
// same products, so one loop nest serves all three ops.
//
//	src (N, C, H, W)   weight (O, C/Groups, KH, KW)   dst (N, O, OH, OW)
func eachTap(op device.Conv2D, src, weight, dst tensor.Shape, f func(s, w, d int)) {
	perGroup, kh, kw := weight[1], weight[2], weight[3]
	height, width := src[2], src[3]
	d := 0
	for n := range dst[0] {
		for o := range dst[1] {
			firstChannel := o / (dst[1] / op.Groups) * perGroup
			for oy := range dst[2] {
				for ox := range dst[3] {
					for c := range perGroup {
						for ky := range kh {
							y := oy*op.Stride[0] - op.Padding[0] + ky*op.Dilation[0]
							if y < 0 || y >= height {
								continue
							}
							for kx := range kw {
								x := ox*op.Stride[1] - op.Padding[1] + kx*op.Dilation[1]
								if x < 0 || x >= width {
									continue
								}
								f(((n*src[1]+firstChannel+c)*height+y)*width+x, ((o*perGroup+c)*kh+ky)*kw+kx, d)
							}
						}
					}
					d++
				}
			}
		}
	}
}

func conv2D[T real](op device.Conv2D, in, out []operand) {
	src, weight := load[T](in[0]), load[T](in[1])
	dst := make([]T, out[0].shape().Elements())
	eachTap(op, in[0].shape(), in[1].shape(), out[0].shape(), func(s, w, d int) { dst[d] += T(src[s] * weight[w]) })
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
	eachTap(op.Conv2D, out[0].shape(), in[1].shape(), in[0].shape(), func(s, w, d int) { diffSrc[s] += T(diffDst[d] * weight[w]) })
	store(out[0], diffSrc)
}

func conv2DDiffWeights[T real](op device.Conv2DDiffWeights, in, out []operand) {
	src, diffDst := load[T](in[0]), load[T](in[1])
	diffWeight := make([]T, out[0].shape().Elements())
	eachTap(op.Conv2D, in[0].shape(), out[0].shape(), in[1].shape(), func(s, w, d int) { diffWeight[w] += T(src[s] * diffDst[d]) })
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
