package reference

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestSmallFloatsRoundToNearestEven(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       float64
		exponent int // number of exponent bits
		want     uint16
	}{
		{"f16 one", 1, 5, 0x3c00},
		{"f16 negative", -2.5, 5, 0xc100},
		{"f16 largest", 65504, 5, 0x7bff},
		{"f16 below the tie to infinity", 65519, 5, 0x7bff},
		{"f16 overflow", 65520, 5, 0x7c00},
		{"f16 far overflow", 1e300, 5, 0x7c00},
		{"f16 tie to even below", 1 + 1.0/2048, 5, 0x3c00},
		{"f16 tie to even above", 1 + 3.0/2048, 5, 0x3c02},
		{"f16 just over a tie, lost if rounded to f32 first", 1 + 1.0/2048 + 1e-12, 5, 0x3c01},
		{"f16 smallest normal", 0x1p-14, 5, 0x0400},
		{"f16 largest subnormal", 0x1p-14 - 0x1p-24, 5, 0x03ff},
		{"f16 rounds up to the smallest normal", 0x1p-14 - 0x1p-26, 5, 0x0400},
		{"f16 smallest subnormal", 0x1p-24, 5, 0x0001},
		{"f16 tie to zero", 0x1p-25, 5, 0x0000},
		{"f16 negative zero", math.Copysign(0, -1), 5, 0x8000},
		{"f16 infinity", math.Inf(-1), 5, 0xfc00},
		{"bf16 one", 1, 8, 0x3f80},
		{"bf16 overflow", 0x1.ffp127, 8, 0x7f80},
		{"bf16 just over a tie, lost if rounded to f32 first", 1 + 1.0/256 + 1e-12, 8, 0x3f81},
		{"bf16 smallest subnormal", 0x1p-133, 8, 0x0001},
	} {
		if got := encodeSmall(c.in, c.exponent); got != c.want {
			t.Errorf("%s: %g: got %#04x, want %#04x", c.name, c.in, got, c.want)
		}
	}
}

func TestBF16AgreesWithTensor(t *testing.T) {
	for bits := uint64(0); bits < 1<<32; bits += 65521 {
		// The step is a prime, so the test covers all upper halves and many lower halves.
		f := math.Float32frombits(uint32(bits))
		got, want := encodeSmall(float64(f), 8), tensor.BF16FromF32(f)
		if f != f {
			if g := tensor.F32FromBF16(got); g == g {
				t.Fatalf("%#x: NaN became %g", bits, g)
			}
			continue
		}
		if got != want {
			t.Fatalf("%#x: got %#04x, want %#04x", bits, got, want)
		}
	}
}

func TestF16DecodesWhatItEncodes(t *testing.T) {
	for h := range 1 << 16 {
		v := decodeF16(uint16(h))
		if v != v {
			if h&0x7c00 != 0x7c00 || h&0x3ff == 0 {
				t.Fatalf("%#04x decoded to NaN", h)
			}
			continue
		}
		if back := encodeSmall(float64(v), 5); back != uint16(h) {
			t.Fatalf("%#04x: decoded to %g, encoded to %#04x", h, v, back)
		}
	}
}

// The vectors are published with Random123, the library of Philox's authors.
func TestPhiloxGivesThePublishedVectors(t *testing.T) {
	for _, c := range []struct {
		counter, want [4]uint32
		key           [2]uint32
	}{
		{[4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, [2]uint32{}},
		{[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, [2]uint32{0xffffffff, 0xffffffff}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, [2]uint32{0xa4093822, 0x299f31d0}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("counter %#x, key %#x: got %#x, want %#x", c.counter, c.key, got, c.want)
		}
	}
}
