package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
)

const (
	lookBits = 10 // codes of up to this length are decoded with one table lookup
	maxCode  = 16 // bits of the longest code
)

var (
	errBadTable = errors.New("jpeg: damaged Huffman table")
	errBadCode  = errors.New("jpeg: damaged: bits without a Huffman code")
	errBitsEnd  = errors.New("jpeg: damaged: premature end of the pixels")
)

// huffman is a table of Huffman codes.
type huffman struct {
	known   bool   // the image has defined the table
	spec    []byte // as in the file: the number of codes of each length, then their symbols
	built   []byte // the spec from which the fields below were computed
	symbols [256]byte
	// look is indexed by the next lookBits bits. An entry is the length of the code times 256, plus its symbol; 0: a
	// longer code.
	look [1 << lookBits]uint16
	// whole is also indexed by these bits. An entry is 0 unless these bits contain both the code and the value of a
	// coefficient. Otherwise it is the value times 256, plus the number of zeros before the value times 16, plus the
	// number of bits.
	whole  [1 << lookBits]int16
	last   [maxCode + 1]int32 // largest code of a length; -1: none
	offset [maxCode + 1]int32 // index of a code's symbol minus the code
	dc     bool               // all symbols may stand for a first coefficient
}

// set reads a table from the contents of a segment and returns the number of bytes read. It does not compute the table,
// because a damaged table that no scan uses is harmless, and an image may have very many tables.
func (h *huffman) set(contents []byte) (int, error) {
	if len(contents) < maxCode {
		return 0, errBadTable
	}
	count := 0
	for _, n := range contents[:maxCode] {
		count += int(n)
	}
	if count > 256 || maxCode+count > len(contents) {
		return 0, errBadTable
	}
	h.known, h.spec = true, append(h.spec[:0], contents[:maxCode+count]...)
	return maxCode + count, nil
}

// use computes the table for a scan. A table that equals the previous one is not computed again: most images of a data
// set have the same tables.
func (h *huffman) use(dc bool) error {
	if !h.known {
		return errBadTable
	}
	if !bytes.Equal(h.spec, h.built) {
		h.built = h.built[:0]
		if err := h.build(); err != nil {
			return err
		}
		h.built = append(h.built, h.spec...)
	}
	if dc && !h.dc {
		return errBadTable
	}
	return nil
}

// standard sets a table of the standard if the image has not defined one.
func (h *huffman) standard(tables *[2][]byte, id byte) {
	if !h.known && int(id) < len(tables) {
		h.known, h.spec = true, append(h.spec[:0], tables[id]...)
	}
}

func (h *huffman) build() error {
	h.look, h.whole, h.dc = [1 << lookBits]uint16{}, [1 << lookBits]int16{}, true
	copy(h.symbols[:], h.spec[maxCode:])
	code, at := int32(0), int32(0)
	for length := int32(1); length <= maxCode; length++ {
		n := int32(h.spec[length-1])
		h.offset[length], h.last[length] = at-code, -1
		if n > 0 {
			h.last[length] = code + n - 1
		}
		for range n {
			if code >= 1<<length {
				return errBadTable
			}
			symbol := h.symbols[at]
			h.dc = h.dc && symbol <= 15
			if length <= lookBits {
				from := code << (lookBits - length)
				for i := range int32(1) << (lookBits - length) {
					h.look[from+i] = uint16(length)<<8 | uint16(symbol)
					h.whole[from+i] = wholeOf(uint32(from+i), length, symbol)
				}
			}
			code, at = code+1, at+1
		}
		if n > 0 && code >= 1<<length { // no code consists of ones only
			return errBadTable
		}
		code <<= 1
	}
	return nil
}

// wholeOf returns the entry of huffman.whole for the next bits, which start with the code of a symbol.
func wholeOf(bits uint32, length int32, symbol byte) int16 {
	size := int32(symbol & 15)
	if size == 0 || size > 7 || length+size > lookBits {
		return 0
	}
	value := int32(bits>>(lookBits-length-size)) & (1<<size - 1)
	if value < 1<<(size-1) {
		value -= 1<<size - 1
	}
	return int16(value<<8 | int32(symbol>>4)<<4 | (length + size))
}

// bitReader reads the bits of a scan up to the next marker.
type bitReader struct {
	data []byte
	at   int    // next byte of data
	bits uint64 // the next bits, from the highest one; zeros after the end
	n    int    // number of these bits; below 0: more bits were read than there are
	// lenient: bits without a code stand for symbol 0, as in libjpeg, which does not always warn of them
	lenient bool
}

const (
	eachByte  = 0x0101010101010101
	eachFirst = 0x8080808080808080
)

// fill reads bytes until at least 57 bits are held, or until a marker follows. When fill is called, at most 56 bits may
// be held.
func (b *bitReader) fill() {
	if b.at+8 <= len(b.data) {
		next := binary.BigEndian.Uint64(b.data[b.at:])
		if (^next-eachByte)&next&eachFirst == 0 { // no byte is 0xFF
			b.bits |= next >> uint(b.n)
			count := (63 - b.n) >> 3
			b.at, b.n = b.at+count, b.n+8*count
			return
		}
	}
	for b.n <= 56 && b.at < len(b.data) {
		value, next := b.data[b.at], b.at+1
		if value == 0xFF {
			for next < len(b.data) && b.data[next] == 0xFF {
				next++
			}
			if next == len(b.data) || b.data[next] != 0 {
				return // a marker
			}
			next++
		}
		b.bits |= uint64(value) << uint(56-b.n)
		b.at, b.n = next, b.n+8
	}
}

// need calls fill if fewer than count bits are held. The parameter count is at most 32.
func (b *bitReader) need(count int) {
	if b.n < count {
		b.fill()
	}
}

// read returns the next count bits, 1 to 16.
func (b *bitReader) read(count uint) int32 {
	b.need(16)
	v := int32(b.bits >> (64 - count))
	b.bits <<= count
	b.n -= int(count)
	return v
}

// symbol decodes a symbol. At least 16 bits must be held, unless a marker follows.
func (b *bitReader) symbol(h *huffman) (byte, error) {
	if e := h.look[b.bits>>(64-lookBits)]; e != 0 {
		b.bits <<= e >> 8
		b.n -= int(e >> 8)
		return byte(e), nil
	}
	return b.longSymbol(h)
}

// longSymbol decodes a symbol whose code is longer than lookBits.
func (b *bitReader) longSymbol(h *huffman) (byte, error) {
	for length := lookBits + 1; length <= maxCode; length++ {
		code := int32(b.bits >> uint(64-length))
		if code <= h.last[length] {
			b.bits <<= uint(length)
			b.n -= length
			return h.symbols[byte(code+h.offset[length])], nil
		}
	}
	switch {
	case b.n < maxCode:
		return 0, errBitsEnd
	case !b.lenient:
		return 0, errBadCode
	}
	b.bits <<= maxCode + 1 // libjpeg has read one more bit
	b.n -= maxCode + 1
	return 0, nil
}

// value reads a signed number of size bits, 0 to 15. At least size bits must be held, unless a marker follows.
func (b *bitReader) value(size uint) int32 {
	if size == 0 {
		return 0
	}
	v := int32(b.bits>>(64-size)) + int32(^(int64(b.bits)>>63))&(1-1<<size)
	b.bits <<= size
	b.n -= int(size)
	return v
}
