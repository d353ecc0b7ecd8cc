package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// ValueError reports a value that is not finite after conversion.
type ValueError struct {
	Element  int64 // row-major index of the element
	From     float64
	FromType tensor.DType
	ToType   tensor.DType
}

func (e *ValueError) Error() string {
	if math.IsNaN(e.From) || math.IsInf(e.From, 0) {
		return fmt.Sprintf("element %d is %g", e.Element, e.From)
	}
	return fmt.Sprintf("element %d, %g, is too large for %v", e.Element, e.From, e.ToType)
}

// Convert converts the numbers in src to another element type, and writes them to dst. The parameters from and to are
// the two types. Both slices are little endian. It rounds to nearest, ties to even. dst must have exactly the size of
// the result. If a result is not finite, Convert returns a *ValueError; dst then contains the results before this
// element.
func Convert(dst []byte, to tensor.DType, src []byte, from tensor.DType) error {
	if !from.IsFloat() || !to.IsFloat() {
		return fmt.Errorf("convert %v to %v: want real numbers", from, to)
	}
	n := int64(len(src)) / from.Size()
	if int64(len(src)) != n*from.Size() || int64(len(dst)) != n*to.Size() {
		return fmt.Errorf(
			"convert %v to %v: got buffers of %d and %d bytes, want buffers for the same number of elements", from, to,
			len(src), len(dst))
	}
	load, store := loads[from], stores[to]
	for i := range n {
		v := load(src[i*from.Size():])
		if !store(dst[i*to.Size():], v) {
			return &ValueError{Element: i, From: v, FromType: from, ToType: to}
		}
	}
	return nil
}

// loads contains, for each type, a function that decodes a number exactly.
var loads = map[tensor.DType]func(p []byte) float64{
	tensor.F64: func(p []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(p)) },
	tensor.F32: func(p []byte) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	},
	tensor.F16:  func(p []byte) float64 { return float64(tensor.F32FromF16(binary.LittleEndian.Uint16(p))) },
	tensor.BF16: func(p []byte) float64 { return float64(tensor.F32FromBF16(binary.LittleEndian.Uint16(p))) },
}

// stores contains, for each type, a function that rounds and writes a number. It reports whether the result is
// finite.
var stores = map[tensor.DType]func(p []byte, v float64) bool{
	tensor.F64: func(p []byte, v float64) bool {
		binary.LittleEndian.PutUint64(p, math.Float64bits(v))
		return v-v == 0
	},
	tensor.F32: func(p []byte, v float64) bool {
		f := float32(v)
		binary.LittleEndian.PutUint32(p, math.Float32bits(f))
		return f-f == 0
	},
	tensor.F16: func(p []byte, v float64) bool {
		h := tensor.F16FromF32(toOdd(v))
		binary.LittleEndian.PutUint16(p, h)
		return h&0x7c00 != 0x7c00
	},
	tensor.BF16: func(p []byte, v float64) bool {
		h := tensor.BF16FromF32(toOdd(v))
		binary.LittleEndian.PutUint16(p, h)
		return h&0x7f80 != 0x7f80
	},
}

// toOdd rounds to f32 such that a second rounding to a shorter type gives the same result as a single rounding. If
// f32 cannot represent v exactly, toOdd returns the neighbour whose last bit is set.
func toOdd(v float64) float32 {
	f := float32(v)
	if float64(f) == v || f-f != 0 || v != v || math.Float32bits(f)&1 == 1 {
		return f
	}
	if float64(f) < v {
		return math.Nextafter32(f, float32(math.Inf(1)))
	}
	return math.Nextafter32(f, float32(math.Inf(-1)))
}
