package tensor

import "math"

// BF16FromF32 rounds to the nearest bfloat16, ties to even; a NaN stays a (quiet) NaN.
func BF16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b >> 16 & 1)) >> 16)
}

// F32FromBF16 converts a bfloat16 to f32. The conversion is exact.
func F32FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F16FromF32 rounds to the nearest IEEE 754 binary16, ties to even. A magnitude of 65,520 or more becomes infinite. A
// magnitude of 2^-25 or less becomes zero. A NaN stays a (quiet) NaN.
func F16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x47800000: // 65,536 and more
		return sign | 0x7c00
	case b >= 0x38800000:
		// at least 2^-14: the result is normal, and a carry out of the fraction increments the exponent
		b -= (127 - 15) << 23
		return sign | uint16((b+0xfff+(b>>13&1))>>13)
	case b < 0x33000000: // below 2^-25
		return sign
	}
	shift := 126 - b>>23 // number of bits to drop from the 24-bit fraction, so that one unit of the result is 2^-24
	fraction := b&0x7fffff | 0x800000
	half := uint32(1) << (shift - 1)
	return sign | uint16((fraction+half-1+(fraction>>shift&1))>>shift)
}

// F32FromF16 converts an IEEE 754 binary16 to f32. The conversion is exact.
func F32FromF16(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero and subnormal: a multiple of 2^-24
		v := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
