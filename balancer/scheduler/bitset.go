package scheduler

import "math/bits"

// bitset is a set of numbers.
type bitset []uint64

func (b bitset) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b bitset) unset(i int) { b[i/64] &^= 1 << (i % 64) }

func (b bitset) has(i int) bool {
	return b[i/64]&(1<<(i%64)) != 0
}

// next returns the first number of the set that is at least i, or -1.
func (b bitset) next(i int) int {
	w := i / 64
	if w >= len(b) {
		return -1
	}
	v := b[w] >> (i % 64)
	if v != 0 {
		return i + bits.TrailingZeros64(v)
	}
	for w++; w < len(b); w++ {
		if b[w] != 0 {
			return w*64 + bits.TrailingZeros64(b[w])
		}
	}
	return -1
}
