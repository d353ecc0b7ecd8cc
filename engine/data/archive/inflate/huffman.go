package inflate

import "math/bits"

const (
	maxCodeBits = 15
	fastBits    = 10
)

// huffman decodes one canonical Huffman code.
type huffman struct {
	fast   [1 << fastBits]uint16 // by the next bits: symbol<<4 | length; 0 for longer codes and those that do not exist
	count  [maxCodeBits + 1]int  // codes of each length
	symbol []uint16              // in the order of codes
}

// build makes the decoder of a code whose lengths are given for each symbol, 0 for symbols that do not occur. As in
// zlib, a code is complete or consists of one symbol of length 1.
func (h *huffman) build(lengths []uint8) bool {
	h.count = [maxCodeBits + 1]int{}
	for _, l := range lengths {
		h.count[l]++
	}
	used := len(lengths) - h.count[0]
	h.count[0] = 0
	clear(h.fast[:])
	left := 1
	for l := 1; l <= maxCodeBits; l++ {
		left = left<<1 - h.count[l]
		if left < 0 {
			return false
		}
	}
	if left > 0 && (used != 1 || h.count[1] != 1) {
		return false
	}
	var first, index [maxCodeBits + 2]int
	for l := 1; l <= maxCodeBits; l++ {
		first[l+1] = (first[l] + h.count[l]) << 1
		index[l+1] = index[l] + h.count[l]
	}
	if cap(h.symbol) < used {
		h.symbol = make([]uint16, 0, 320)
	}
	h.symbol = h.symbol[:used]
	code, place := first, index
	for s, l := range lengths {
		if l == 0 {
			continue
		}
		h.symbol[place[l]] = uint16(s)
		place[l]++
		if l <= fastBits {
			reversed := int(bits.Reverse16(uint16(code[l])) >> (16 - l))
			for k := reversed; k < 1<<fastBits; k += 1 << l {
				h.fast[k] = uint16(s)<<4 | uint16(l)
			}
		}
		code[l]++
	}
	return true
}

// decode reads a symbol; -1 for bits that are no code.
func (h *huffman) decode(b *stream) (int, error) {
	if b.in.n < maxCodeBits {
		if err := b.in.fill(); err != nil {
			return 0, err
		}
	}
	if e := h.fast[b.in.held&(1<<fastBits-1)]; e != 0 && uint(e&15) <= b.in.n {
		b.in.drop(uint(e & 15))
		return int(e >> 4), nil
	}
	return h.slow(b)
}

// slow goes through the lengths one by one.
func (h *huffman) slow(b *stream) (int, error) {
	code, first, index := 0, 0, 0
	for l := uint(1); l <= maxCodeBits; l++ {
		if err := b.in.need(l); err != nil {
			return 0, err
		}
		code |= int(b.in.held >> (l - 1) & 1)
		if n := h.count[l]; code-first < n {
			b.in.drop(l)
			return int(h.symbol[index+code-first]), nil
		} else {
			index += n
			first = (first + n) << 1
		}
		code <<= 1
	}
	return -1, nil
}
