package hyper

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// Dimension is the usual number of components of a vector.
const Dimension = 10000

// Vector is a bipolar vector. Component i is +1 if bit i%64 of word i/64 is 0, else -1. The bits beyond the dimension
// are 0.
type Vector []uint64

// Space is the set of all vectors of one dimension, with the seed of its random vectors.
type Space struct {
	dimension int
	words     int
	seed      uint64
	tie       Vector
}

// Limits of [NewSpace].
const (
	MinDimension = 64
	MaxDimension = 1 << 20
)

// NewSpace returns the space of a dimension. Spaces with equal arguments have equal vectors.
func NewSpace(dimension int, seed uint64) (*Space, error) {
	if dimension < MinDimension || dimension > MaxDimension {
		return nil, fmt.Errorf("dimension of vectors: got %d, want %d to %d", dimension, MinDimension, MaxDimension)
	}
	s := &Space{dimension: dimension, words: (dimension + 63) / 64, seed: seed}
	s.tie = s.Random("tie")
	return s, nil
}

// Dimension returns the number of components.
func (s *Space) Dimension() int { return s.dimension }

// New returns a vector whose components are +1. It is the identity of [Space.Bind].
func (s *Space) New() Vector { return make(Vector, s.words) }

// Random returns the random vector of a name. It depends only on the name and on the space.
func (s *Space) Random(name string) Vector {
	v := s.New()
	s.fill(v, rand.NewPCG(s.seed, hash(name)))
	return v
}

func (s *Space) fill(v Vector, source *rand.PCG) {
	for i := range v {
		v[i] = source.Uint64()
	}
	v[s.words-1] &= s.tail()
}

// tail returns a mask of the bits of the last word that belong to components.
func (s *Space) tail() uint64 { return ^uint64(0) >> (s.words*64 - s.dimension) }

// hash is FNV-1a with 64 bits. PCG mixes its second half.
func hash(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// Bind writes the product of a and b to dst, which may be one of them.
func (s *Space) Bind(dst, a, b Vector) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] ^ b[i]
	}
}

// Negate writes -a to dst, which may be a.
func (s *Space) Negate(dst, a Vector) {
	for i := range dst {
		dst[i] = ^a[i]
	}
	dst[s.words-1] &= s.tail()
}

// Distance returns the number of components in which a and b differ.
func (s *Space) Distance(a, b Vector) int {
	b = b[:len(a)]
	var n0, n1, n2, n3, i int
	for ; i+4 <= len(a); i += 4 { // four independent sums, so that the popcounts run in parallel
		n0 += bits.OnesCount64(a[i] ^ b[i])
		n1 += bits.OnesCount64(a[i+1] ^ b[i+1])
		n2 += bits.OnesCount64(a[i+2] ^ b[i+2])
		n3 += bits.OnesCount64(a[i+3] ^ b[i+3])
	}
	for ; i < len(a); i++ {
		n0 += bits.OnesCount64(a[i] ^ b[i])
	}
	return n0 + n1 + n2 + n3
}

// Similarity returns the cosine of the angle between a and b, between -1 and 1.
func (s *Space) Similarity(a, b Vector) float64 {
	return 1 - 2*float64(s.Distance(a, b))/float64(s.dimension)
}
