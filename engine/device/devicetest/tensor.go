package devicetest

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Tensor is a tensor on the host.
type Tensor struct {
	Spec   device.TensorSpec // spec with plain layout
	Values []float64         // elements in row-major order; unused for opaque tensors
	Raw    []byte            // bytes in device memory, only for opaque tensors
}

// Of returns a tensor. Values that dt cannot represent are rounded when the tensor is used.
func Of(dt tensor.DType, shape tensor.Shape, values ...float64) Tensor {
	return Tensor{Spec: device.Spec(dt, shape...), Values: values}
}

// Random returns a tensor whose element i is gen(seed, i).
func Random(dt tensor.DType, shape tensor.Shape, seed uint64, gen Generator) Tensor {
	t := Tensor{Spec: device.Spec(dt, shape...), Values: make([]float64, shape.Elements())}
	for i := range t.Values {
		t.Values[i] = gen(seed, uint64(i))
	}
	return t
}

// Generator returns the value of element i in the random stream that seed selects.
type Generator func(seed, i uint64) float64

// Uniform returns a generator of values in [low, high).
func Uniform(low, high float64) Generator {
	return func(seed, i uint64) float64 {
		return low + (high-low)*float64(mix(mix(seed)+i)>>11)/(1<<53)
	}
}

// Integers returns a generator of integers in [low, high].
func Integers(low, high int) Generator {
	u := Uniform(float64(low), float64(high)+1)
	return func(seed, i uint64) float64 { return math.Floor(u(seed, i)) }
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit affects every output bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// seedOf hashes a name to a seed (FNV-1a).
func seedOf(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h
}
