package reference

import (
	"encoding/binary"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// real is the type in which ops compute. A product that is added to a value must be written as T(a*b): the conversion
// prevents a fused multiply-add, which would round only once.
type real interface{ float32 | float64 }

// operand is one bound tensor.
type operand struct {
	spec device.TensorSpec
	mem  []byte
}

func (o operand) shape() tensor.Shape { return o.spec.Shape }

// load decodes a tensor of any float type.
func load[T real](o operand) []T {
	out := make([]T, o.shape().Elements())
	switch o.spec.DType {
	case tensor.F32:
		for i := range out {
			out[i] = T(math.Float32frombits(binary.NativeEndian.Uint32(o.mem[4*i:])))
		}
	case tensor.F64:
		for i := range out {
			out[i] = T(math.Float64frombits(binary.NativeEndian.Uint64(o.mem[8*i:])))
		}
	case tensor.BF16:
		for i := range out {
			out[i] = T(tensor.F32FromBF16(binary.NativeEndian.Uint16(o.mem[2*i:])))
		}
	case tensor.F16:
		for i := range out {
			out[i] = T(decodeF16(binary.NativeEndian.Uint16(o.mem[2*i:])))
		}
	}
	return out
}

// store rounds values to the type of o, a float type, to nearest even.
func store[T real](o operand, values []T) {
	switch o.spec.DType {
	case tensor.F32:
		for i, v := range values {
			binary.NativeEndian.PutUint32(o.mem[4*i:], math.Float32bits(float32(v)))
		}
	case tensor.F64:
		for i, v := range values {
			binary.NativeEndian.PutUint64(o.mem[8*i:], math.Float64bits(float64(v)))
		}
	case tensor.BF16:
		for i, v := range values {
			binary.NativeEndian.PutUint16(o.mem[2*i:], encodeSmall(float64(v), 8))
		}
	case tensor.F16:
		for i, v := range values {
			binary.NativeEndian.PutUint16(o.mem[2*i:], encodeSmall(float64(v), 5))
		}
	}
}

func loadI64(o operand) []int64 {
	out := make([]int64, o.shape().Elements())
	for i := range out {
		out[i] = int64(binary.NativeEndian.Uint64(o.mem[8*i:]))
	}
	return out
}

func loadI32(o operand) []int32 {
	out := make([]int32, o.shape().Elements())
	for i := range out {
		out[i] = int32(binary.NativeEndian.Uint32(o.mem[4*i:]))
	}
	return out
}

func storeI32(o operand, values []int32) {
	for i, v := range values {
		binary.NativeEndian.PutUint32(o.mem[4*i:], uint32(v))
	}
}

// encodeSmall rounds x, once, to a 16-bit float with exponentBits bits of exponent.
func encodeSmall(x float64, exponentBits int) uint16 {
	fractionBits := 15 - exponentBits
	bias := 1<<(exponentBits-1) - 1
	infinity := uint16(1<<exponentBits-1) << fractionBits
	sign := uint16(math.Float64bits(x) >> 63 << 15)
	switch {
	case math.IsNaN(x):
		return sign | infinity | 1<<(fractionBits-1)
	case math.IsInf(x, 0):
		return sign | infinity
	case x == 0:
		return sign
	}
	pattern := math.Float64bits(x)
	e := int(pattern>>52&(1<<11-1)) - 1023 // |x| in [2^e, 2^(e+1)), unless it is far too small for a 16-bit float
	significand := pattern&(1<<52-1) | 1<<52
	exponent := max(e, 1-bias)
	shift := 52 - fractionBits + exponent - e
	if shift > 54 {
		return sign // rounds to 0: less than half of the smallest number
	}
	// The variable units is |x| in units of the last fraction bit. If rounding gives the next power of two, it carries
	// into the exponent.
	units, half := significand>>shift, uint64(1)<<(shift-1)
	if rest := significand & (1<<shift - 1); rest > half || rest == half && units%2 == 1 {
		units++
	}
	code := uint64(exponent+bias-1)<<fractionBits + units
	return sign | uint16(min(code, uint64(infinity)))
}

// decodeF16 converts an f16 to f32. The conversion is exact.
func decodeF16(h uint16) float32 {
	exponent, fraction := int(h>>10&31), float64(h&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 31:
		v = math.Inf(1)
		if fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

// Encode rounds values to elements of type dt in plain memory. It rounds real numbers to nearest even, and integers
// towards zero. Each value of opaque state is one byte.
func Encode(dt tensor.DType, values []float64) []byte {
	spec := device.Spec(dt, len(values))
	o := operand{spec: spec, mem: make([]byte, int64(len(values))*dt.Size())}
	if dt.IsFloat() {
		store(o, values)
		return o.mem
	}
	for i, v := range values {
		putInteger(o, i, int64(v))
	}
	return o.mem
}

// Decode is the inverse of Encode, except that 64-bit integers above 2⁵³ lose bits.
func Decode(dt tensor.DType, mem []byte) []float64 {
	o := operand{spec: device.Spec(dt, len(mem)/int(dt.Size())), mem: mem}
	if dt.IsFloat() {
		return load[float64](o)
	}
	out := make([]float64, o.shape().Elements())
	for i := range out {
		switch dt {
		case tensor.I64:
			out[i] = float64(int64(binary.NativeEndian.Uint64(mem[8*i:])))
		case tensor.I32:
			out[i] = float64(int32(binary.NativeEndian.Uint32(mem[4*i:])))
		case tensor.U32:
			out[i] = float64(binary.NativeEndian.Uint32(mem[4*i:]))
		default:
			out[i] = float64(mem[i])
		}
	}
	return out
}

// putInteger writes the low bytes of v, in two's complement, to element i.
func putInteger(o operand, i int, v int64) {
	switch o.spec.DType.Size() {
	case 8:
		binary.NativeEndian.PutUint64(o.mem[8*i:], uint64(v))
	case 4:
		binary.NativeEndian.PutUint32(o.mem[4*i:], uint32(v))
	default:
		o.mem[i] = byte(v)
	}
}
