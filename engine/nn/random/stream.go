package random

import "math"

const (
	gamma      = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd; step of the counter
	fnvOffset  = 0xcbf29ce484222325
	fnvPrime   = 0x100000001b3
	uniformUlp = 1.0 / (1 << 53) // distance between neighbouring values of Uniform
)

// Stream is the sequence of random numbers of one (seed, name). It has no state, so any index can be read in any order,
// and it is safe for concurrent use. The zero Stream is valid, but has no name.
type Stream struct{ base uint64 }

// New returns the stream of name under seed.
func New(seed uint64, name string) Stream {
	hash := uint64(fnvOffset)
	for _, b := range []byte(name) {
		hash = (hash ^ uint64(b)) * fnvPrime
	}
	return Stream{base: mix(hash ^ mix(seed))}
}

// Bits returns the 64 random bits of index i.
func (s Stream) Bits(i uint64) uint64 { return mix(s.base + (i+1)*gamma) }

// Uniform returns the number of index i. It is uniform over the multiples of 2^-53 in [0, 1).
func (s Stream) Uniform(i uint64) float64 { return float64(s.Bits(i)>>11) * uniformUlp }

// Normal returns the number of index i, which has mean 0 and standard deviation 1. It uses Uniform(2i) and
// Uniform(2i+1). Its absolute value is at most sqrt(2·53·ln 2) = 8.6.
func (s Stream) Normal(i uint64) float64 {
	radius := math.Sqrt(-2 * math.Log(1-s.Uniform(2*i))) // 1 - Uniform is exact and never 0
	return radius * math.Cos(2*math.Pi*s.Uniform(2*i+1))
}

// Between returns lo + (hi-lo)·Uniform(i). After rounding to f32, the result may equal hi.
func (s Stream) Between(i uint64, lo, hi float64) float64 {
	scaled := float64((hi - lo) * s.Uniform(i)) // the conversion prevents a fused multiply-add
	return lo + scaled
}

// Gaussian returns mean + std·Normal(i).
func (s Stream) Gaussian(i uint64, mean, std float64) float64 {
	scaled := float64(std * s.Normal(i)) // the conversion prevents a fused multiply-add
	return mean + scaled
}

// mix is the finaliser of SplitMix64. It is a bijection of 64-bit integers in which every input bit affects every
// output bit.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
