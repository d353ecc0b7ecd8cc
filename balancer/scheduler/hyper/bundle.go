package hyper

import "fmt"

// Bundle is a sum of vectors. [Bundle.Majority] converts the sum to a vector. The counts are exact, so members can be
// removed again.
//
// The counts are stored in bit planes: each word of plane p has bit p of the counts of 64 components. Add increments
// the counts with a ripple carry, which ends after two planes on average.
type Bundle struct {
	space  *Space
	planes [][]uint64
	n      int
}

// NewBundle returns a bundle without members.
func (s *Space) NewBundle() *Bundle { return &Bundle{space: s} }

// Len returns the number of members.
func (b *Bundle) Len() int { return b.n }

// Clear removes all members.
func (b *Bundle) Clear() {
	b.n = 0
	for _, p := range b.planes {
		clear(p)
	}
}

// Add adds a member. It allocates memory only when the number of members reaches a power of two for the first time.
func (b *Bundle) Add(v Vector) {
	b.n++
	if b.n >= 1<<len(b.planes) {
		b.planes = append(b.planes, make([]uint64, b.space.words))
	}
	for i, carry := range v {
		for p := 0; carry != 0; p++ {
			word := b.planes[p][i]
			b.planes[p][i] = word ^ carry
			carry &= word
		}
	}
}

// Remove removes a vector that was added before. If the vector is not a member, Remove or a later call panics, or the
// result is meaningless.
func (b *Bundle) Remove(v Vector) {
	if b.n == 0 {
		panic(fmt.Sprintf("hyper: Remove from a bundle without members (dimension %d)", b.space.dimension))
	}
	b.n--
	for i, borrow := range v {
		for p := 0; borrow != 0; p++ {
			word := b.planes[p][i]
			b.planes[p][i] = word ^ borrow
			borrow &= ^word
		}
	}
}

// Majority writes the majority of the members to dst, component by component. In a tie, it takes the component of a
// fixed random vector. Without members, the result is this random vector.
func (b *Bundle) Majority(dst Vector) {
	half := b.n / 2
	for i := range dst {
		// Compare all 64 counts of the word with half, from the highest bit down.
		var above uint64
		equal := ^uint64(0)
		for p := len(b.planes) - 1; p >= 0; p-- {
			word := b.planes[p][i]
			if half>>p&1 == 0 {
				above |= equal & word
				equal &^= word
			} else {
				equal &= word
			}
		}
		if b.n%2 == 0 {
			above |= equal & b.space.tie[i] // half of an even number: a tie
		}
		dst[i] = above
	}
	dst[len(dst)-1] &= b.space.tail()
}
