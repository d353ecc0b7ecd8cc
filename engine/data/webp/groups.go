package webp

import (
	"errors"
	"fmt"
)

// mostGroups is the largest number of groups of Huffman codes in a lossless image that a decoder reads. Encoders write
// at most this number. libwebp would read 65,536, for which it needs up to 1.3 GB even if the image is small.
const mostGroups = 2600

// groupBytes is the memory of a group in libwebp, without the codes for its cache of colours. These need 4 bytes per
// entry.
const groupBytes = 13 << 10

// errCodes is the error of Huffman codes or references that are invalid, or that no encoder writes.
var errCodes = errors.New("webp: Huffman codes of a form that encoders do not write")

// huffman describes the Huffman codes of the pixels of a lossless image.
type huffman struct {
	groups int
	cache  int // number of colours in the cache; each has a code in each group
}

// bytes is the memory that libwebp needs for the codes.
func (h huffman) bytes() int64 { return int64(h.groups) * int64(groupBytes+4*h.cache) }

// readHuffman reads the start of a lossless image: its transforms, and the image that selects a group for each block of
// pixels. It accepts only codes that libwebp reads in the same way.
func readHuffman(encoded []byte, width, height int) (h huffman, err error) {
	const header = 8 + 14 + 14 + 1 + 3
	r := &bits{b: encoded, at: header}
	seen := [4]bool{}
	for r.read(1) == 1 {
		kind := r.read(2)
		if seen[kind] {
			return h, errCodes
		}
		seen[kind] = true
		shift := 0
		switch kind {
		case 0, 1: // predictors, relations of colours
			size := r.read(3) + 2
			_, err = r.image(blocks(width, size), blocks(height, size))
		case 3: // palette
			colours := r.read(8) + 1
			for _, most := range []int{16, 4, 2} { // 2, 4 or 8 pixels become one
				if colours <= most {
					shift++
				}
			}
			width = blocks(width, shift)
			_, err = r.image(colours, 1)
		}
		if err != nil {
			return h, fmt.Errorf("transform %d: %w", kind, err)
		}
	}
	if h.cache, err = r.cache(); err != nil {
		return h, err
	}
	h.groups = 1
	if r.read(1) == 1 {
		size := r.read(3) + 2
		chosen, err := r.image(blocks(width, size), blocks(height, size))
		if err != nil {
			return h, fmt.Errorf("groups: %w", err)
		}
		for _, pixel := range chosen {
			h.groups = max(h.groups, int(pixel>>8&0xffff)+1)
		}
	}
	return h, r.err()
}

// blocks returns the number of blocks of 1<<shift pixels.
func blocks(pixels, shift int) int { return (pixels + 1<<shift - 1) >> shift }

// bits reads the bits of an encoded image, beginning with the lowest bit of each byte.
type bits struct {
	b  []byte
	at int // position in bits; beyond b if bits are missing
}

func (r *bits) read(n int) (value int) {
	for k := range n {
		if i := r.at >> 3; i < len(r.b) {
			value |= int(r.b[i]>>(r.at&7)&1) << k
		}
		r.at++
	}
	return value
}

func (r *bits) err() error {
	if r.at > 8*len(r.b) {
		return errCodes
	}
	return nil
}

// cache reads the size of a cache of colours.
func (r *bits) cache() (size int, err error) {
	if r.read(1) == 0 {
		return 0, nil
	}
	n := r.read(4)
	if n < 1 || n > 11 {
		return 0, errCodes
	}
	return 1 << n, nil
}

// Symbols of the code for green: 256 values, 24 lengths of references, and the cache.
const values, lengths = 256, 24

// image reads an image with one group of codes. A pixel has 8 bits for each of opacity, red, green and blue.
func (r *bits) image(width, height int) ([]uint32, error) {
	size, err := r.cache()
	if err != nil {
		return nil, err
	}
	var codes [5]code // green, red, blue, opacity, distance
	for i, symbols := range []int{values + lengths + size, values, values, values, 40} {
		if codes[i], err = r.code(symbols); err != nil {
			return nil, err
		}
	}
	colours, cached := make([]uint32, size), 0
	pix := make([]uint32, 0, width*height)
	for len(pix) < width*height {
		green := r.symbol(&codes[0])
		switch {
		case green < values:
			red, blue, opacity := r.symbol(&codes[1]), r.symbol(&codes[2]), r.symbol(&codes[3])
			pix = append(pix, uint32(opacity<<24|red<<16|green<<8|blue))
		case green < values+lengths:
			length := r.number(green - values)
			distance := distanceOf(width, r.number(r.symbol(&codes[4])))
			if distance > len(pix) || length > width*height-len(pix) {
				return nil, errCodes
			}
			for range length {
				pix = append(pix, pix[len(pix)-distance])
			}
		default:
			shift := 32
			for n := size; n > 1; n >>= 1 {
				shift--
			}
			for ; cached < len(pix); cached++ {
				colours[pix[cached]*0x1e35a7bd>>shift] = pix[cached]
			}
			pix = append(pix, colours[green-values-lengths])
		}
		if err := r.err(); err != nil {
			return nil, err
		}
	}
	return pix, nil
}

// number returns the length or distance of a symbol. It reads the bits that follow the symbol.
func (r *bits) number(symbol int) int {
	if symbol < 4 {
		return symbol + 1
	}
	extra := (symbol - 2) >> 1
	return (2+symbol&1)<<extra + r.read(extra) + 1
}

// near contains the positions of the distances 1 to 120. The upper 4 bits are the number of rows above. The lower 4
// bits are 8 minus the number of pixels to the left.
const near = "\x18\x07\x17\x19\x28\x06\x27\x29\x16\x1a\x26\x2a\x38\x05\x37\x39\x15\x1b\x36\x3a" +
	"\x25\x2b\x48\x04\x47\x49\x14\x1c\x35\x3b\x46\x4a\x24\x2c\x58\x45\x4b\x34\x3c\x03" +
	"\x57\x59\x13\x1d\x56\x5a\x23\x2d\x44\x4c\x55\x5b\x33\x3d\x68\x02\x67\x69\x12\x1e" +
	"\x66\x6a\x22\x2e\x54\x5c\x43\x4d\x65\x6b\x32\x3e\x78\x01\x77\x79\x53\x5d\x11\x1f" +
	"\x64\x6c\x42\x4e\x76\x7a\x21\x2f\x75\x7b\x31\x3f\x63\x6d\x52\x5e\x00\x74\x7c\x41" +
	"\x4f\x10\x20\x62\x6e\x30\x73\x7d\x51\x5f\x40\x72\x7e\x61\x6f\x50\x71\x7f\x60\x70"

// distanceOf returns the distance in pixels.
func distanceOf(width, number int) int {
	if number > len(near) {
		return number - len(near)
	}
	n := int(near[number-1])
	return max(n>>4*width+8-n&15, 1)
}

// code is a Huffman code: the numbers of symbols with 1 to 15 bits, and the symbols in the order of their codes. A
// single symbol has no bits.
type code struct {
	count   [16]int
	symbols []int
}

func (r *bits) symbol(c *code) int {
	if len(c.symbols) == 1 {
		return c.symbols[0]
	}
	value, first, index := 0, 0, 0
	for n := 1; ; n++ { // the code is complete, so that this ends within 15 bits
		value |= r.read(1)
		if value-first < c.count[n] {
			return c.symbols[index+value-first]
		}
		index += c.count[n]
		first = (first + c.count[n]) << 1
		value <<= 1
	}
}

// newCode returns the Huffman code in which symbol i has length[i] bits. It returns an error unless the code is
// complete or has a single symbol.
func newCode(length []int) (c code, err error) {
	for n := 1; n < len(c.count); n++ {
		for symbol, bits := range length {
			if bits == n {
				c.count[n]++
				c.symbols = append(c.symbols, symbol)
			}
		}
	}
	free := 1
	for n := 1; n < len(c.count); n++ {
		if free = 2*free - c.count[n]; free < 0 {
			return c, errCodes
		}
	}
	if len(c.symbols) != 1 && free != 0 {
		return c, errCodes
	}
	return c, nil
}

// code reads a Huffman code for the given number of symbols.
func (r *bits) code(symbols int) (c code, err error) {
	length := make([]int, max(symbols, values))
	if r.read(1) == 1 {
		two := r.read(1) == 1
		first := r.read(1 + 7*r.read(1))
		length[first] = 1
		if two {
			second := r.read(8)
			if second <= first { // Go and libwebp read this in different ways
				return c, errCodes
			}
			length[second] = 1
		}
	} else if err := r.lengths(length[:symbols]); err != nil {
		return c, err
	}
	for _, n := range length[symbols:] {
		if n > 0 {
			return c, errCodes
		}
	}
	if err := r.err(); err != nil {
		return c, err
	}
	return newCode(length)
}

// lengths reads the lengths of the codes of a Huffman code. The lengths are encoded with another Huffman code.
func (r *bits) lengths(out []int) error {
	order := [19]int{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	n := 4 + r.read(4)
	if n > len(order) {
		return errCodes
	}
	own := make([]int, len(order))
	for _, symbol := range order[:n] {
		own[symbol] = r.read(3)
	}
	c, err := newCode(own)
	if err != nil {
		return err
	}
	most := len(out)
	if r.read(1) == 1 {
		if most = 2 + r.read(2+2*r.read(3)); most > len(out) {
			return errCodes
		}
	}
	previous := 8
	for at := 0; at < len(out) && most > 0; most-- {
		value, repeat := r.symbol(&c), 1
		switch value {
		case 16:
			value, repeat = previous, 3+r.read(2)
		case 17:
			value, repeat = 0, 3+r.read(3)
		case 18:
			value, repeat = 0, 11+r.read(7)
		}
		if repeat > len(out)-at {
			return errCodes
		}
		for range repeat {
			out[at] = value
			at++
		}
		if value > 0 {
			previous = value
		}
	}
	return r.err()
}
