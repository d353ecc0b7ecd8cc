package jpeg

import "math"

// The inverse cosine transform of libjpeg ("islow", jidctint.c, and jidctred.c for images at 1/2, 1/4 and 1/8), after
// C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", 1989. All
// arithmetic is on integers, so that the result equals the one of libjpeg on every machine.

// block holds the 64 coefficients of a block in rows, multiplied by their quantization factors.
type block [64]int16

// Constants are in 13-bit fixed point. The results of the first pass, over columns, keep 2 fractional bits.
const (
	constBits = 13
	passBits  = 2
)

const (
	f0211 = 1730  // 0.211164243
	f0298 = 2446  // 0.298631336
	f0390 = 3196  // 0.390180644
	f0509 = 4176  // 0.509795579
	f0541 = 4433  // 0.541196100
	f0601 = 4926  // 0.601344887
	f0720 = 5906  // 0.720959822
	f0765 = 6270  // 0.765366865
	f0850 = 6967  // 0.850430095
	f0899 = 7373  // 0.899976223
	f1061 = 8697  // 1.061594337
	f1175 = 9633  // 1.175875602
	f1272 = 10426 // 1.272758580
	f1451 = 11893 // 1.451774981
	f1501 = 12299 // 1.501321110
	f1847 = 15137 // 1.847759065
	f1961 = 16069 // 1.961570560
	f2053 = 16819 // 2.053119869
	f2172 = 17799 // 2.172734803
	f2562 = 20995 // 2.562915447
	f3072 = 25172 // 3.072711026
	f3624 = 29692 // 3.624509785
)

// sample converts a result to a stored byte: 0 to 255, around 128.
func sample(v int32) uint8 {
	if v += 128; uint32(v) > 255 {
		return uint8(^(v >> 31))
	}
	return uint8(v)
}

// Coefficients of damaged images can be too large for the registers of 16 bits in which libjpeg-turbo calculates on
// x86-64. To give the same pixels, the functions below convert to int16 where a register wraps around, and saturate
// where it saturates. libjpeg-turbo gives other pixels for such images on other processors.

// flat writes a square of equal samples for a block in which only the first coefficient is not 0.
func flat(first int16, out []byte, stride, size int) {
	var v int32
	switch size {
	case 1: // a table of 1024 entries limits the sample
		v = int32(int16((int32(first)+4)>>3<<6)) >> 6
	case 2:
		v = (int32(first)<<(constBits+passBits+2) + 1<<(constBits+passBits+4)) >> (constBits + passBits + 5)
	default:
		v = (int32(first<<passBits) + 1<<(passBits+2)) >> (passBits + 3)
	}
	to := sample(v)
	for y := range size {
		row := out[y*stride:][:size]
		for x := range row {
			row[x] = to
		}
	}
}

// limit converts results of the first pass to 16 bits. It is called if at least one result needs more bits.
func limit(w []int32, b *block) {
	wrap := true // only the first row has coefficients
	for _, v := range b[8:] {
		wrap = wrap && v == 0
	}
	for i, v := range w {
		if wrap {
			w[i] = int32(int16(v))
		} else {
			w[i] = min(max(v, math.MinInt16), math.MaxInt16)
		}
	}
}

// wide returns a number of at least 1<<16 if v needs more than 16 bits, otherwise a smaller number.
func wide(v int32) uint32 { return uint32(v - math.MinInt16) }

// even8 and odd8 are the two halves of the transform of 8 values.
func even8(s0, s2, s4, s6 int32) (a, b, c, d int32) {
	z := (s2 + s6) * f0541
	t2, t3 := z-s6*f1847, z+s2*f0765
	t0, t1 := int32(int16(s0+s4))<<constBits, int32(int16(s0-s4))<<constBits
	return t0 + t3, t1 + t2, t1 - t2, t0 - t3
}

func odd8(s1, s3, s5, s7 int32) (a, b, c, d int32) {
	z1, z2, z3, z4 := -(s7+s1)*f0899, -(s5+s3)*f2562, int32(int16(s7+s3)), int32(int16(s5+s1))
	z5 := (z3 + z4) * f1175
	z3, z4 = z5-z3*f1961, z5-z4*f0390
	return s1*f1501 + z1 + z4, s3*f3072 + z2 + z3, s5*f2053 + z2 + z4, s7*f0298 + z1 + z3
}

// inverse8 writes the 8 x 8 samples of a block. out holds rows of stride bytes.
func inverse8(b *block, out []byte, stride int) {
	var w [64]int32
	large := uint32(0)
	const shift, half = constBits - passBits, 1 << (constBits - passBits - 1)
	for x := range 8 {
		if b[8+x]|b[16+x]|b[24+x]|b[32+x]|b[40+x]|b[48+x]|b[56+x] == 0 {
			v := int32(b[x]) << passBits
			w[x], w[8+x], w[16+x], w[24+x], w[32+x], w[40+x], w[48+x], w[56+x] = v, v, v, v, v, v, v, v
			large |= wide(v)
			continue
		}
		e0, e1, e2, e3 := even8(int32(b[x]), int32(b[16+x]), int32(b[32+x]), int32(b[48+x]))
		o0, o1, o2, o3 := odd8(int32(b[8+x]), int32(b[24+x]), int32(b[40+x]), int32(b[56+x]))
		e0, e1, e2, e3 = e0+half, e1+half, e2+half, e3+half
		v0, v1, v2, v3 := (e0+o0)>>shift, (e1+o1)>>shift, (e2+o2)>>shift, (e3+o3)>>shift
		v4, v5, v6, v7 := (e3-o3)>>shift, (e2-o2)>>shift, (e1-o1)>>shift, (e0-o0)>>shift
		w[x], w[8+x], w[16+x], w[24+x], w[32+x], w[40+x], w[48+x], w[56+x] = v0, v1, v2, v3, v4, v5, v6, v7
		large |= wide(v0) | wide(v1) | wide(v2) | wide(v3) | wide(v4) | wide(v5) | wide(v6) | wide(v7)
	}
	if large >= 1<<16 {
		limit(w[:], b)
	}
	const last, lastHalf = constBits + passBits + 3, 1 << (constBits + passBits + 2)
	for y := range 8 {
		r := (*[8]int32)(w[8*y:])
		to := (*[8]byte)(out[y*stride:])
		e0, e1, e2, e3 := even8(r[0], r[2], r[4], r[6])
		o0, o1, o2, o3 := odd8(r[1], r[3], r[5], r[7])
		e0, e1, e2, e3 = e0+lastHalf, e1+lastHalf, e2+lastHalf, e3+lastHalf
		to[0], to[7] = sample((e0+o0)>>last), sample((e0-o0)>>last)
		to[1], to[6] = sample((e1+o1)>>last), sample((e1-o1)>>last)
		to[2], to[5] = sample((e2+o2)>>last), sample((e2-o2)>>last)
		to[3], to[4] = sample((e3+o3)>>last), sample((e3-o3)>>last)
	}
}

// half4 transforms 8 values, except the one at index 4, to 4 values that are scaled by 2^(constBits+1).
func half4(s0, s1, s2, s3, s5, s6, s7 int32) (a, b, c, d int32) {
	t0 := s0 << (constBits + 1)
	t2 := s2*f1847 - s6*f0765
	o0 := -s7*f0211 + s5*f1451 - s3*f2172 + s1*f1061
	o2 := -s7*f0509 - s5*f0601 + s3*f0899 + s1*f2562
	return t0 + t2 + o2, t0 - t2 + o0, t0 - t2 - o0, t0 + t2 - o2
}

// inverse4 writes the 4 x 4 samples of a block at half size.
func inverse4(b *block, out []byte, stride int) {
	var w [32]int32
	large := uint32(0)
	const shift, half = constBits - passBits + 1, 1 << (constBits - passBits)
	for x := range 8 {
		if x == 4 {
			continue
		}
		v0, v1, v2, v3 := half4(int32(b[x]), int32(b[8+x]), int32(b[16+x]), int32(b[24+x]), int32(b[40+x]),
			int32(b[48+x]), int32(b[56+x]))
		v0, v1, v2, v3 = (v0+half)>>shift, (v1+half)>>shift, (v2+half)>>shift, (v3+half)>>shift
		w[x], w[8+x], w[16+x], w[24+x] = v0, v1, v2, v3
		large |= wide(v0) | wide(v1) | wide(v2) | wide(v3)
	}
	if large >= 1<<16 {
		even := *b
		clear(even[32:40]) // this row is not read
		limit(w[:], &even)
	}
	const last, lastHalf = constBits + passBits + 4, 1 << (constBits + passBits + 3)
	for y := range 4 {
		r := (*[8]int32)(w[8*y:])
		to := (*[4]byte)(out[y*stride:])
		v0, v1, v2, v3 := half4(r[0], r[1], r[2], r[3], r[5], r[6], r[7])
		to[0], to[1] = sample((v0+lastHalf)>>last), sample((v1+lastHalf)>>last)
		to[2], to[3] = sample((v2+lastHalf)>>last), sample((v3+lastHalf)>>last)
	}
}

// quarter2 transforms the values at indices 0, 1, 3, 5 and 7 to 2 values that are scaled by 2^(constBits+2).
func quarter2(s0, s1, s3, s5, s7 int32) (a, b int32) {
	t := s0 << (constBits + 2)
	odd := -s7*f0720 + s5*f0850 - s3*f1272 + s1*f3624
	return t + odd, t - odd
}

// inverse2 writes the 2 x 2 samples of a block at a quarter of its size.
func inverse2(b *block, out []byte, stride int) {
	var w [16]int32
	const shift, half = constBits - passBits + 2, 1 << (constBits - passBits + 1)
	for _, x := range [...]int{0, 1, 3, 5, 7} {
		v0, v1 := quarter2(int32(b[x]), int32(b[8+x]), int32(b[24+x]), int32(b[40+x]), int32(b[56+x]))
		if v0, v1 = (v0+half)>>shift, (v1+half)>>shift; x > 0 {
			v0, v1 = min(max(v0, math.MinInt16), math.MaxInt16), min(max(v1, math.MinInt16), math.MaxInt16)
		}
		w[x], w[8+x] = v0, v1
	}
	const last, lastHalf = constBits + passBits + 5, 1 << (constBits + passBits + 4)
	for y := range 2 {
		r := (*[8]int32)(w[8*y:])
		v0, v1 := quarter2(r[0], r[1], r[3], r[5], r[7])
		out[y*stride], out[y*stride+1] = sample((v0+lastHalf)>>last), sample((v1+lastHalf)>>last)
	}
}

// inverse writes the samples of a block, size x size: 8, 4, 2 or 1.
func inverse(b *block, out []byte, stride, size int) {
	switch size {
	case 8:
		inverse8(b, out, stride)
	case 4:
		inverse4(b, out, stride)
	case 2:
		inverse2(b, out, stride)
	default:
		flat(b[0], out, stride, 1)
	}
}
