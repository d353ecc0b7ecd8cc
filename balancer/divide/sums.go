package divide

import (
	"cmp"
	"math/bits"
	"slices"
)

// sums is a set of numbers from 0 to a largest one: the units that some ranks can give back together. If ranks can give
// back all numbers but a few, the set consists of few intervals, and takes a time and memory that do not grow with the
// number of units. A set of many intervals has one bit for each number.
type sums struct {
	spans []span
	bits  []uint64 // nil: the set is in spans
}

// span is an interval of numbers, with both ends. The spans of a set ascend and do not touch each other.
type span struct{ first, last int }

// mostSpans is the largest number of intervals of a set without bits. Larger: sets with many gaps take longer.
const mostSpans = 128

// plus returns the sums, of at most most, of a number of the set and a number of one of the spans.
func (s sums) plus(spans []span, most int) sums {
	if s.bits == nil && len(s.spans)*len(spans) > mostSpans {
		s.bits = make([]uint64, most/64+1)
		for _, own := range s.spans {
			for n := own.first; n <= own.last; n++ {
				s.bits[n/64] |= 1 << (n % 64)
			}
		}
	}
	if s.bits != nil {
		return sums{bits: plusBits(s.bits, spans)}
	}
	var room [mostSpans]span
	all := room[:0]
	for _, a := range s.spans {
		for _, b := range spans {
			if first := a.first + b.first; first <= most {
				all = append(all, span{first, min(a.last+b.last, most)})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return sums{spans: slices.Clone(joined(all))}
}

// joined unites the spans of an ascending list that overlap or touch, in place.
func joined(list []span) []span {
	n := 0
	for _, next := range list {
		if n > 0 && next.first <= list[n-1].last+1 {
			list[n-1].last = max(list[n-1].last, next.last)
		} else {
			list[n] = next
			n++
		}
	}
	return list[:n]
}

// plusBits is [sums.plus] for a set of bits. The bits of numbers that are too large are lost.
func plusBits(set []uint64, spans []span) []uint64 {
	out := make([]uint64, len(set))
	wide := make([]uint64, len(set))
	for _, s := range spans {
		clear(wide)
		orShifted(wide, set, s.first)
		for width := 1; width <= s.last-s.first; { // numbers of the span in wide
			more := min(width, s.last-s.first+1-width)
			orShifted(wide, wide, more)
			width += more
		}
		orShifted(out, wide, 0)
	}
	return out
}

// orShifted adds the numbers of a set plus n to out, which may be the same set.
func orShifted(out, set []uint64, n int) {
	words, shift := n/64, n%64
	for i := len(set) - 1; i >= words; i-- { // from the end, because out may be the set
		word := set[i-words] << shift
		if shift > 0 && i > words {
			word |= set[i-words-1] >> (64 - shift)
		}
		out[i] |= word
	}
}

// has reports whether the set has a number.
func (s sums) has(n int) bool {
	if s.bits != nil {
		return s.bits[n/64]>>(n%64)&1 == 1
	}
	at, found := slices.BinarySearchFunc(s.spans, n, func(s span, n int) int { return cmp.Compare(s.first, n) })
	return found || at > 0 && n <= s.spans[at-1].last
}

// largest returns the largest number of the set that is at most most.
func (s sums) largest(most int) int {
	if s.bits == nil {
		return s.spans[len(s.spans)-1].last // plus leaves out larger numbers
	}
	i := most / 64
	word := s.bits[i] << (63 - most%64) >> (63 - most%64)
	for word == 0 {
		i--
		word = s.bits[i]
	}
	return 64*i + 63 - bits.LeadingZeros64(word)
}
