package images

import (
	"encoding/binary"
	"hash/adler32"
	"math/bits"
	"sync"
)

// inflater decompresses zlib streams (RFC 1950 and 1951) whose decompressed size is known. It therefore needs no window
// and no intermediate buffers. For photographs, it is 1.40 to 1.55 times as fast as klauspost/compress/zlib, and 1.8 to
// 2.2 times as fast as compress/zlib (BenchmarkUnpack, docs/benchmarks/data.md). The zero value is ready.
type inflater struct {
	in   []byte
	at   int    // position in in
	bits uint64 // next bits of the stream, from bit 0; those after held are bits of in[at:], or 0
	held int    // number of valid bits in bits

	literals  huffman
	distances huffman
	order     huffman // code of the code lengths
}

// Sizes of the tables. With larger tables, their construction would take longer than the decoding of a small image.
const (
	literalBits  = 11
	distanceBits = 8
	orderBits    = 7
	longestCode  = 15
)

// huffman is a table of the codes of a block. Its first part is indexed by the next bits of the stream. For longer
// codes, an entry leads to a part that is indexed by the bits that follow.
type huffman struct {
	entries []huffmanEntry
	size    int // bits of the index of the first part
}

// huffmanEntry describes the code that begins with the bits of the index.
//
//	bits 0 to 7    length of the code; in an entry that leads to another part, length of the index of the first part
//	bits 8 to 11   kind
//	bits 12 to 15  number of extra bits that are added to the value, or length of the index of the other part
//	bits 16 to 31  value: a literal, the smallest length or distance, or the position of the other part
type huffmanEntry uint32

// Kinds of entries.
const (
	codeLiteral huffmanEntry = iota << 8
	codeBase                 // a length or a distance
	codeEnd                  // of the block
	codeLonger               // leads to another part
	codeNone                 // no code
	kindMask    huffmanEntry = 15 << 8
)

// literalEntry returns the entry of a literal or length, without the bits of the code.
func literalEntry(symbol int) huffmanEntry {
	switch {
	case symbol < 256:
		return codeLiteral | huffmanEntry(symbol)<<16
	case symbol == 256:
		return codeEnd
	case symbol == 285:
		return codeBase | 258<<16
	case symbol > 285:
		return codeNone
	}
	k := symbol - 257
	if k < 8 {
		return codeBase | huffmanEntry(k+3)<<16
	}
	extra := k/4 - 1
	return codeBase | huffmanEntry(extra)<<12 | huffmanEntry((4+k%4)<<extra+3)<<16
}

// distanceEntry returns the entry of a distance, without the bits of the code.
func distanceEntry(symbol int) huffmanEntry {
	switch {
	case symbol > 29:
		return codeNone
	case symbol < 4:
		return codeBase | huffmanEntry(symbol+1)<<16
	}
	extra := symbol/2 - 1
	return codeBase | huffmanEntry(extra)<<12 | huffmanEntry((2+symbol%2)<<extra+1)<<16
}

// build constructs the table from the lengths of the codes. It returns false if the codes do not form a prefix code, or
// if codes are missing. The code of distances may have no or one symbol.
func (h *huffman) build(lengths []byte, size int, entryOf func(symbol int) huffmanEntry) bool {
	var count, next [longestCode + 2]int
	for _, n := range lengths {
		count[n]++
	}
	count[0] = 0
	left, longest := 1, 0 // unused codes
	for n := 1; n <= longestCode; n++ {
		left = 2*left - count[n]
		if left < 0 {
			return false
		}
		if count[n] > 0 {
			longest = n
		}
		next[n+1] = 2 * (next[n] + count[n])
	}
	if left > 0 && longest > 1 {
		return false
	}
	h.size = size
	first := 1 << size
	if cap(h.entries) < first {
		h.entries = make([]huffmanEntry, first, 2*first)
	}
	h.entries = h.entries[:first]
	for i := range h.entries {
		h.entries[i] = codeNone
	}
	// the bits of the index of each further part
	if longest > size {
		starts := next
		for _, n := range lengths {
			if n == 0 {
				continue
			}
			code := starts[n]
			starts[n]++
			if int(n) > size {
				prefix := reversed(code, int(n)) & (first - 1)
				if more := huffmanEntry(int(n) - size); h.entries[prefix]&kindMask == codeNone ||
					more > h.entries[prefix]>>12&15 {
					h.entries[prefix] = codeLonger | more<<12
				}
			}
		}
		for prefix := range first {
			if e := h.entries[prefix]; e&kindMask == codeLonger {
				part := len(h.entries)
				for range 1 << (e >> 12 & 15) {
					h.entries = append(h.entries, codeNone)
				}
				h.entries[prefix] = e | huffmanEntry(size) | huffmanEntry(part)<<16
			}
		}
	}
	for symbol, n := range lengths {
		if n == 0 {
			continue
		}
		code := reversed(next[n], int(n))
		next[n]++
		if int(n) <= size {
			e := entryOf(symbol) | huffmanEntry(n)
			for i := code; i < first; i += 1 << n {
				h.entries[i] = e
			}
			continue
		}
		e := entryOf(symbol) | huffmanEntry(int(n)-size)
		part := h.entries[code&(first-1)]
		for i := code >> size; i < 1<<(part>>12&15); i += 1 << (int(n) - size) {
			h.entries[int(part>>16)+i] = e
		}
	}
	return true
}

// reversed returns the n bits of a code in the order of the stream.
func reversed(code, n int) int { return int(bits.Reverse16(uint16(code)) >> (16 - n)) }

// unpack decompresses a zlib stream that fills out. It returns false if the stream is damaged, if its size differs from
// that of out, or if bytes follow it.
func (f *inflater) unpack(out, packed []byte) bool {
	const deflate, dictionary = 8, 1 << 5
	if len(packed) < 6 || packed[0]&15 != deflate || packed[0]>>4 > 7 || packed[1]&dictionary != 0 ||
		binary.BigEndian.Uint16(packed)%31 != 0 {
		return false
	}
	f.in, f.at, f.bits, f.held = packed, 2, 0, 0
	n := 0
	for last := false; !last; {
		f.fill()
		if f.held < 3 {
			return false
		}
		last = f.take(1) == 1
		ok := false
		switch f.take(2) {
		case 0:
			n, ok = f.stored(out, n)
		case 1:
			tables := fixedTables()
			n, ok = f.block(out, n, &tables[0], &tables[1])
		case 2:
			if ok = f.dynamic(); ok {
				n, ok = f.block(out, n, &f.literals, &f.distances)
			}
		}
		if !ok {
			return false
		}
	}
	f.at -= f.held / 8
	rest := f.in[f.at:]
	return n == len(out) && len(rest) == 4 && binary.BigEndian.Uint32(rest) == adler32.Checksum(out)
}

// fill reads bits until at least 56 bits are held, or until the stream ends.
func (f *inflater) fill() {
	if f.at+8 <= len(f.in) {
		f.bits |= binary.LittleEndian.Uint64(f.in[f.at:]) << (f.held & 63)
		f.at += (63 - f.held) >> 3
		f.held |= 56
		return
	}
	for f.held < 56 && f.at < len(f.in) {
		f.bits |= uint64(f.in[f.at]) << (f.held & 63)
		f.at++
		f.held += 8
	}
}

// take removes the next n bits and returns them. The caller must check that n bits are held.
func (f *inflater) take(n int) int {
	v := int(f.bits & (1<<n - 1))
	f.bits >>= n
	f.held -= n
	return v
}

// stored copies a block that is not compressed to out[n:], and returns the position after it.
func (f *inflater) stored(out []byte, n int) (int, bool) {
	f.at -= f.held / 8
	f.bits, f.held = 0, 0
	if f.at+4 > len(f.in) {
		return n, false
	}
	length, check := int(binary.LittleEndian.Uint16(f.in[f.at:])), binary.LittleEndian.Uint16(f.in[f.at+2:])
	f.at += 4
	if uint16(length)^check != 0xffff || f.at+length > len(f.in) || n+length > len(out) {
		return n, false
	}
	copy(out[n:], f.in[f.at:f.at+length])
	f.at += length
	return n + length, true
}

// fixedTables returns the tables of literals and distances of RFC 1951, 3.2.6. All blocks share them, because their
// construction would take longer than the decoding of a short block.
var fixedTables = sync.OnceValue(func() (tables [2]huffman) {
	var lengths [288 + 32]byte
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		case i < 288:
			lengths[i] = 8
		default:
			lengths[i] = 5
		}
	}
	if !tables[0].build(lengths[:288], literalBits, literalEntry) ||
		!tables[1].build(lengths[288:], distanceBits, distanceEntry) {
		panic("the fixed codes are no prefix code")
	}
	return tables
})

// orderOfLengths is the order in which a block stores the code of the code lengths.
var orderOfLengths = [19]byte{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamic reads the codes of a block.
func (f *inflater) dynamic() bool {
	f.fill()
	if f.held < 14 {
		return false
	}
	literals, distances, codes := 257+f.take(5), 1+f.take(5), 4+f.take(4)
	if literals > 286 || distances > 30 {
		return false
	}
	var order [19]byte
	for _, symbol := range orderOfLengths[:codes] {
		if f.fill(); f.held < 3 {
			return false
		}
		order[symbol] = byte(f.take(3))
	}
	if !f.order.build(order[:], orderBits, func(symbol int) huffmanEntry { return huffmanEntry(symbol) << 16 }) {
		return false
	}
	var lengths [286 + 30]byte
	for n := 0; n < literals+distances; {
		f.fill()
		e := f.order.entries[f.bits&(1<<orderBits-1)]
		symbol, bits := byte(e>>16), int(e&63)
		extra := extraOfOrder(symbol)
		if e&kindMask == codeNone || f.held < bits+extra {
			return false
		}
		f.take(bits)
		if symbol < 16 {
			lengths[n] = symbol
			n++
			continue
		}
		value, least := byte(0), 3
		switch symbol {
		case 16:
			if n == 0 {
				return false
			}
			value = lengths[n-1]
		case 18:
			least = 11
		}
		times := least + f.take(extra)
		if n+times > literals+distances {
			return false
		}
		for range times {
			lengths[n] = value
			n++
		}
	}
	return lengths[256] > 0 && f.literals.build(lengths[:literals], literalBits, literalEntry) &&
		f.distances.build(lengths[literals:literals+distances], distanceBits, distanceEntry)
}

// extraOfOrder returns the bits that follow a symbol of the code of the code lengths.
func extraOfOrder(symbol byte) int {
	switch symbol {
	case 16:
		return 2
	case 17:
		return 3
	case 18:
		return 7
	}
	return 0
}

// block decompresses a block to out[n:], and returns the position after it.
func (f *inflater) block(out []byte, n int, literalCodes, distanceCodes *huffman) (int, bool) {
	in, at, stream, held := f.in, f.at, f.bits, f.held // in registers
	literals, distances := literalCodes.entries, distanceCodes.entries
	first := (*[1 << literalBits]huffmanEntry)(literals)
	firstDistance := (*[1 << distanceBits]huffmanEntry)(distances)
read:
	for held >= 0 { // below 0: the stream has ended too early
		if at+8 <= len(in) {
			stream |= binary.LittleEndian.Uint64(in[at:]) << (held & 63)
			at += (63 - held) >> 3
			held |= 56
		} else {
			for held < 56 && at < len(in) {
				stream |= uint64(in[at]) << (held & 63)
				at++
				held += 8
			}
		}
		e := first[stream&(1<<literalBits-1)]
		for e&kindMask == codeLiteral {
			if n >= len(out) {
				return n, false
			}
			out[n] = byte(e >> 16)
			n++
			stream >>= e & 63
			if held -= int(e & 63); held < longestCode {
				continue read
			}
			e = first[stream&(1<<literalBits-1)]
		}
		if e&kindMask == codeLonger {
			stream >>= literalBits
			held -= literalBits
			e = literals[int(e>>16)+int(stream&(1<<(e>>12&15)-1))]
		}
		stream >>= e & 63
		held -= int(e & 63)
		switch e & kindMask {
		case codeLiteral:
			if n >= len(out) {
				return n, false
			}
			out[n] = byte(e >> 16)
			n++
			continue
		case codeEnd:
			f.at, f.bits, f.held = at, stream, held
			return n, held >= 0
		case codeNone:
			return n, false
		}
		if held < 0 {
			break
		}
		if at+8 <= len(in) {
			stream |= binary.LittleEndian.Uint64(in[at:]) << (held & 63)
			at += (63 - held) >> 3
			held |= 56
		} else { // the rest of a length and a distance have up to 33 bits
			for held < 56 && at < len(in) {
				stream |= uint64(in[at]) << (held & 63)
				at++
				held += 8
			}
		}
		extra := e >> 12 & 15
		length := int(e>>16) + int(stream&(1<<extra-1))
		stream >>= extra
		held -= int(extra)
		e = firstDistance[stream&(1<<distanceBits-1)]
		if e&kindMask == codeLonger {
			stream >>= distanceBits
			held -= distanceBits
			e = distances[int(e>>16)+int(stream&(1<<(e>>12&15)-1))]
		}
		if e&kindMask != codeBase {
			return n, false
		}
		stream >>= e & 63
		extra = e >> 12 & 15
		distance := int(e>>16) + int(stream&(1<<extra-1))
		stream >>= extra
		held -= int(e&63) + int(extra)
		if distance > n || length > len(out)-n {
			return n, false
		}
		for from, end := n-distance, n+length; n < end; { // a copied part lengthens the part that is repeated
			n += copy(out[n:end], out[from:n])
		}
	}
	return n, false
}
