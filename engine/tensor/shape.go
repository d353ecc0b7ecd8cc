package tensor

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MaxDims is the maximum number of dimensions of a tensor. The C ABI of native devices contains the same number.
const MaxDims = 6

// Shape is the extent of each dimension, outermost first. A scalar has the empty shape.
type Shape []int

// Elements returns the number of elements, which is the product of the extents; 1 for a scalar.
func (s Shape) Elements() int64 {
	n := int64(1)
	for _, d := range s {
		n *= int64(d)
	}
	return n
}

// Check returns an error unless every extent is positive, the shape has at most MaxDims dimensions, and 8 bytes for
// each element fit into an int64.
func (s Shape) Check() error {
	if len(s) > MaxDims {
		return fmt.Errorf("shape %v: got %d dimensions, want at most %d", s, len(s), MaxDims)
	}
	n := int64(1)
	for i, d := range s {
		if d <= 0 {
			return fmt.Errorf("shape %v: dimension %d: got %d, want at least 1", s, i, d)
		}
		if n > math.MaxInt64/8/int64(d) {
			return fmt.Errorf("shape %v: too many elements", s)
		}
		n *= int64(d)
	}
	return nil
}

// Equal reports whether both shapes have the same extents.
func (s Shape) Equal(o Shape) bool { return slices.Equal(s, o) }

// Clone returns a copy that shares no memory with s.
func (s Shape) Clone() Shape { return slices.Clone(s) }

// Strides returns the distance between neighbours along each dimension in the row-major (plain) layout, in elements.
func (s Shape) Strides() []int64 {
	st := make([]int64, len(s))
	n := int64(1)
	for i := len(s) - 1; i >= 0; i-- {
		st[i] = n
		n *= int64(s[i])
	}
	return st
}

func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('(')
	for i, d := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(')')
	return b.String()
}
