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

// F32FromBF16 is exact.
func F32FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
