package reference

import (
	"encoding/binary"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	add(unary[float32], unary[float64])
	add(unaryDiff[float32], unaryDiff[float64])
	add(binaryOp[float32], binaryOp[float64])
	add(scale[float32], scale[float64])
	add(fill[float32], fill[float64])
	add(dropout[float32], dropout[float64])
	add(imageNormalize[float32], imageNormalize[float64])
}

// The tanh approximation of GELU is x/2·(1 + tanh(rootTwoOverPi·(x + geluTanhCubic·x³))).
const (
	geluTanhCubic  = 0.044715
	rootTwoOverPi  = math.Sqrt2 / (math.SqrtPi)
	rootHalf       = 1 / math.Sqrt2
	normalDensity0 = 1 / (math.Sqrt2 * math.SqrtPi) // density of the standard normal distribution at 0
)

// Transcendental functions are computed in f64 and rounded to T; all other arithmetic is in T.
func exp[T real](x T) T       { return T(math.Exp(float64(x))) }
func logarithm[T real](x T) T { return T(math.Log(float64(x))) }
func tanh[T real](x T) T      { return T(math.Tanh(float64(x))) }
func erf[T real](x T) T       { return T(math.Erf(float64(x))) }
func sigmoid[T real](x T) T   { return 1 / (1 + exp(-x)) }

// geluTanh returns the argument of tanh in the approximation of GELU.
func geluTanh[T real](x T) T { return rootTwoOverPi * (x + T(geluTanhCubic*x*x*x)) }

// apply returns f(x).
func apply[T real](f device.UnaryFunc, x T) T {
	switch f {
	case device.ReLU:
		return max(x, 0)
	case device.Sigmoid:
		return sigmoid(x)
	case device.Tanh:
		return tanh(x)
	case device.GELU:
		return x / 2 * (1 + erf(x*rootHalf))
	case device.GELUTanh:
		return x / 2 * (1 + tanh(geluTanh(x)))
	case device.Exp:
		return exp(x)
	case device.Log:
		return logarithm(x)
	case device.Sqrt:
		return squareRoot(x)
	case device.Square:
		return x * x
	case device.Neg:
		return -x
	case device.Abs:
		return T(math.Abs(float64(x)))
	}
	panic("unary function that Infer accepted") // unreachable: Compile has checked the op
}

// derivative returns f'(x).
func derivative[T real](f device.UnaryFunc, x T) T {
	switch f {
	case device.ReLU:
		if x > 0 {
			return 1
		}
		return 0
	case device.Sigmoid:
		s := sigmoid(x)
		return s * (1 - s)
	case device.Tanh:
		t := tanh(x)
		return 1 - T(t*t)
	case device.GELU:
		return (1+erf(x*rootHalf))/2 + T(x*T(normalDensity0*exp(-x*x/2)))
	case device.GELUTanh:
		t := tanh(geluTanh(x))
		inner := rootTwoOverPi * (1 + T(3*geluTanhCubic*x*x))
		return (1+t)/2 + T(x/2*(1-T(t*t))*inner)
	case device.Exp:
		return exp(x)
	case device.Log:
		return 1 / x
	case device.Sqrt:
		return 1 / (2 * squareRoot(x))
	case device.Square:
		return 2 * x
	case device.Neg:
		return -1
	case device.Abs:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}
	panic("unary function that Infer accepted") // unreachable: Compile has checked the op
}

func unary[T real](op device.Unary, in, out []operand) {
	v := load[T](in[0])
	for i, x := range v {
		v[i] = apply(op.Func, x)
	}
	store(out[0], v)
}

func unaryDiff[T real](op device.UnaryDiff, in, out []operand) {
	diff, src := load[T](in[0]), load[T](in[1])
	for i, x := range src {
		diff[i] *= derivative(op.Func, x)
	}
	store(out[0], diff)
}

func combine[T real](f device.BinaryFunc, a, b T) T {
	switch f {
	case device.Add:
		return a + b
	case device.Sub:
		return a - b
	case device.Mul:
		return a * b
	case device.Div:
		return a / b
	case device.Max:
		return max(a, b)
	case device.Min:
		return min(a, b)
	}
	panic("binary function that Infer accepted") // unreachable: Compile has checked the op
}

func binaryOp[T real](op device.Binary, in, out []operand) {
	a, b := load[T](in[0]), load[T](in[1])
	full, part := in[0].shape(), in[1].shape()
	strides := make([]int, len(full)) // strides of b in the dimensions of a; 0 in broadcast dimensions
	for i, s := range part.Strides() {
		if part[i] > 1 {
			strides[len(full)-len(part)+i] = int(s)
		}
	}
	for i, j := range offsets(full, strides, 0) {
		a[i] = combine(op.Func, a[i], b[j])
	}
	store(out[0], a)
}

func scale[T real](_ device.Scale, in, out []operand) {
	v, factor := load[T](in[0]), load[T](in[1])[0]
	for i := range v {
		v[i] *= factor
	}
	store(out[0], v)
}

func fill[T real](op device.Fill, _, out []operand) {
	n := int(op.Shape.Elements())
	if op.DType.IsFloat() {
		v := make([]T, n)
		for i := range v {
			v[i] = T(op.Value)
		}
		store(out[0], v)
		return
	}
	for i := range n {
		putInteger(out[0], i, int64(op.Value))
	}
}

func dropout[T real](op device.Dropout, in, out []operand) {
	v, ids := load[T](in[0]), loadI64(in[1])
	key := [2]uint32{binary.NativeEndian.Uint32(in[2].mem), binary.NativeEndian.Uint32(in[2].mem[4:])}
	threshold := uint64(math.Round(op.P * (1 << 32)))
	factor := T(1 / (1 - op.P))
	perSample := len(v) / len(ids)
	for i := range v {
		id, position := uint64(ids[i/perSample]), uint32(i%perSample)
		words := philox([4]uint32{position / 4, op.Stream, uint32(id), uint32(id >> 32)}, key)
		if uint64(words[position%4]) >= threshold {
			v[i] *= factor
		} else {
			v[i] = 0
		}
	}
	store(out[0], v)
}

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a := uint64(counter[0]) * 0xD2511F53
		b := uint64(counter[2]) * 0xCD9E8D57
		counter = [4]uint32{uint32(b>>32) ^ counter[1] ^ key[0], uint32(b), uint32(a>>32) ^ counter[3] ^ key[1],
			uint32(a)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// imageNormalize converts src (N, H, W, C) bytes to dst (N, C, H, W).
func imageNormalize[T real](op device.ImageNormalize, in, out []operand) {
	shape := in[0].shape()
	channels, pixels := shape[3], shape[1]*shape[2]
	dst := make([]T, out[0].shape().Elements())
	for i, b := range in[0].mem[:len(dst)] {
		n, pixel, c := i/(pixels*channels), i/channels%pixels, i%channels
		factor := 1 / (255 * T(op.Std[c]))
		shift := -T(op.Mean[c]) / T(op.Std[c])
		dst[(n*channels+c)*pixels+pixel] = T(T(b)*factor) + shift
	}
	store(out[0], dst)
}

// copyElement copies element j of src to element i of dst, for any type.
func copyElement(dst operand, i int, src operand, j int) {
	size := int(dst.spec.DType.Size())
	copy(dst.mem[i*size:(i+1)*size], src.mem[j*size:(j+1)*size])
}

// offsets returns base + sum of index·stride for each element of shape in row-major order.
func offsets(shape tensor.Shape, strides []int, base int) []int {
	list := []int{base}
	for d, extent := range shape {
		longer := make([]int, 0, len(list)*extent)
		for _, o := range list {
			for i := range extent {
				longer = append(longer, o+i*strides[d])
			}
		}
		list = longer
	}
	return list
}

// rowMajor returns the strides of shape as ints.
func rowMajor(shape tensor.Shape) []int {
	strides := make([]int, len(shape))
	for i, s := range shape.Strides() {
		strides[i] = int(s)
	}
	return strides
}
