package collectivetest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// unordered reports whether the order of a sum is unspecified. A sum of two numbers is the same in both orders.
func (r *rig) unordered(dt tensor.DType) bool {
	return r.Unordered && r.size > 2 && isReal(dt)
}

func isReal(dt tensor.DType) bool { return dt == tensor.F32 || dt == tensor.BF16 || dt == tensor.F64 }

// summands returns values for all ranks. Their sums are bit-equal in every permitted order. For unordered groups, the
// values are integers up to 16. A sum of up to 16 such integers is exact in every type.
func (r *rig) summands(seed uint64, dt tensor.DType, n int) [][]byte {
	if !r.unordered(dt) {
		return randoms(seed, dt, n, r.size)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(r.size)))
	all := make([][]byte, r.size)
	for rank := range all {
		for range n {
			all[rank] = appendReal(all[rank], dt, float64(rng.IntN(33)-16))
		}
	}
	return all
}

// compareSums runs an all-reduce of arbitrary numbers. The results must be bit-equal on all ranks, and must be possible
// results of some order of addition.
func (r *rig) compareSums(dt tensor.DType, in [][]byte) {
	r.t.Helper()
	out := r.reduced(dt, collective.Sum, in)
	want := r.oracle(dt, collective.Sum, in)
	size := int(dt.Size())
	summands := make([]float64, r.size)
	for at := 0; at < len(want); at += size {
		for rank := range in {
			summands[rank] = number(dt, in[rank][at:])
		}
		if got, one := number(dt, out[0][at:]), number(dt, want[at:]); !possible(dt, summands, got, one) {
			r.t.Fatalf("%v sum of %d bytes: byte %d: %v: got %v, in the order of ranks it is %v", dt, len(want), at,
				summands, got, one)
		}
	}
	for rank, got := range out {
		if !bytes.Equal(got, out[0]) {
			r.t.Fatalf("%v sum of %d bytes: rank %d has other bits than rank 0", dt, len(want), rank)
		}
	}
}

// possible reports whether got can be a sum of the summands in some order. reference is their sum in another order.
// Each of the n-1 additions has a relative error of at most u. It thus adds at most u times the sum of magnitudes to
// the total error (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Both got and reference may have such
// an error.
func possible(dt tensor.DType, summands []float64, got, reference float64) bool {
	u, largest := 0x1p-24, math.MaxFloat32
	switch dt {
	case tensor.BF16:
		u, largest = 0x1p-8, 0x1.fep127
	case tensor.F64:
		u, largest = 0x1p-53, math.MaxFloat64
	}
	var magnitude, infinite float64
	up, down := false, false
	for _, v := range summands {
		switch {
		case math.IsNaN(v):
			return math.IsNaN(got)
		case math.IsInf(v, 0):
			up, down, infinite = up || v > 0, down || v < 0, v
		default:
			magnitude += math.Abs(v)
		}
	}
	bound := 2 * float64(len(summands)) * u * magnitude
	switch overflows := magnitude+bound > largest; { // the sum overflows in some orders
	case up && down:
		return math.IsNaN(got)
	case up || down:
		return got == infinite || overflows && math.IsNaN(got)
	case overflows:
		return math.IsNaN(got) || math.IsInf(got, 0) || math.Abs(got) <= magnitude+bound
	}
	return math.Abs(got-reference) <= bound
}

// number decodes a number of a real type.
func number(dt tensor.DType, b []byte) float64 {
	switch dt {
	case tensor.BF16:
		return float64(tensor.F32FromBF16(binary.LittleEndian.Uint16(b)))
	case tensor.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// appendReal appends the encoding of v in a real type.
func appendReal(b []byte, dt tensor.DType, v float64) []byte {
	switch dt {
	case tensor.BF16:
		return binary.LittleEndian.AppendUint16(b, tensor.BF16FromF32(float32(v)))
	case tensor.F64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
}
