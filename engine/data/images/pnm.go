package images

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/hetero-train/hetero-train/engine/data"
)

// netpbm is the header of a PBM, PGM or PPM image.
type netpbm struct {
	plain         bool // values are decimal numbers
	bits          bool // PBM: a value is 0 (white) or 1 (black)
	channels      int
	width, height int
	most          int // largest value
	at            int // position of the first value
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// readNetpbm reads the header. The caller has called formatOf.
func readNetpbm(b []byte) (h netpbm, err error) {
	kind := b[1] - '0'
	h = netpbm{plain: kind <= 3, bits: kind == 1 || kind == 4, channels: 1, most: 1, at: 2}
	if kind == 3 || kind == 6 {
		h.channels = 3
	}
	fields := []*int{&h.width, &h.height, &h.most}
	if h.bits {
		fields = fields[:2]
	}
	for _, field := range fields {
		if *field, h.at, err = decimal(b, h.at); err != nil {
			return h, err
		}
	}
	if h.at >= len(b) || !isSpace(b[h.at]) {
		return h, errors.New("pnm: the header does not end with a space")
	}
	h.at++
	if h.most < 1 || h.most > math.MaxUint16 {
		return h, fmt.Errorf("pnm: largest value is %d, want 1 to %d", h.most, math.MaxUint16)
	}
	return h, nil
}

// decimal reads a decimal number after spaces and comments. It returns the position after the number.
func decimal(b []byte, at int) (n, end int, err error) {
	for at < len(b) && (isSpace(b[at]) || b[at] == '#') {
		if b[at] == '#' {
			comment := bytes.IndexAny(b[at:], "\n\r")
			if comment < 0 {
				break
			}
			at += comment
		}
		at++
	}
	const most = 10 // digits
	start := at
	for ; at < len(b) && b[at] >= '0' && b[at] <= '9'; at++ {
		if at-start == most {
			return 0, at, fmt.Errorf("pnm: a number of more than %d digits at byte %d", most, start)
		}
		n = 10*n + int(b[at]-'0')
	}
	if at == start {
		if at >= len(b) {
			return 0, at, fmt.Errorf("pnm: %w", io.ErrUnexpectedEOF)
		}
		return 0, at, fmt.Errorf("pnm: got byte %#x at byte %d, want a number", b[at], at)
	}
	return n, at, nil
}

// decodePNM decodes a PBM, PGM or PPM image. Values are scaled to 0 … 255. If the largest grey value is above 255, the
// upper 8 bits are used.
func (d *Decoder) decodePNM(contents []byte, img *data.Image) error {
	h, err := readNetpbm(contents)
	if err != nil {
		return err
	}
	if err := d.checkSize(h.width, h.height); err != nil {
		return err
	}
	if len(contents)-h.at < h.leastBytes() { // check before memory for the pixels is allocated
		return fmt.Errorf("pnm: %w", io.ErrUnexpectedEOF)
	}
	d.pix = grow(d.pix, 3*h.width*h.height)
	*img = data.Image{Pix: d.pix, Width: h.width, Height: h.height, FullWidth: h.width, FullHeight: h.height}
	if !h.plain && h.channels == 3 && h.most == 255 { // the usual form
		if copy(d.pix, contents[h.at:]) < len(d.pix) {
			return fmt.Errorf("pnm: %w", io.ErrUnexpectedEOF)
		}
		return nil
	}
	next := h.values(contents)
	scale := h.scale()
	for at := 0; at < len(d.pix); at += 3 {
		for c := range h.channels {
			v, err := next()
			if err != nil {
				return err
			}
			if v > h.most {
				return fmt.Errorf("pnm: got value %d, want at most %d", v, h.most)
			}
			d.pix[at+c] = scale[v]
		}
		if h.channels == 1 {
			d.pix[at+1], d.pix[at+2] = d.pix[at], d.pix[at]
		}
	}
	return nil
}

// leastBytes returns the minimum number of bytes of all values.
func (h netpbm) leastBytes() int {
	n := h.width * h.height * h.channels
	switch {
	case h.plain && h.bits: // digits
		return n
	case h.plain: // digits, and spaces between them
		return 2*n - 1
	case h.bits:
		return h.height * ((h.width + 7) / 8)
	case h.most > 255:
		return 2 * n
	}
	return n
}

// scale returns a table that maps each value to a pixel.
func (h netpbm) scale() []byte {
	table := make([]byte, h.most+1)
	for v := range table {
		part := float64(v) / float64(h.most)
		switch {
		case h.bits:
			part = 1 - part
			fallthrough
		case h.channels == 3 || h.most <= 255:
			table[v] = byte(math.RoundToEven(part * 255))
		default: // as for other 16-bit grey images
			table[v] = byte(int(math.RoundToEven(part*math.MaxUint16)) >> 8)
		}
	}
	return table
}

// values returns a function that reads the values in order.
func (h netpbm) values(b []byte) func() (int, error) {
	at, bit := h.at, 0
	switch {
	case h.plain && h.bits: // digits need no spaces between them
		return func() (int, error) {
			for at < len(b) && (isSpace(b[at]) || b[at] == '#') {
				if b[at] == '#' {
					at += max(bytes.IndexAny(b[at:], "\n\r"), 0)
				}
				at++
			}
			if at >= len(b) {
				return 0, fmt.Errorf("pnm: %w", io.ErrUnexpectedEOF)
			}
			at++
			if v := b[at-1]; v != '0' && v != '1' {
				return 0, fmt.Errorf("pnm: got byte %#x at byte %d, want 0 or 1", v, at-1)
			}
			return int(b[at-1] - '0'), nil
		}
	case h.plain:
		return func() (v int, err error) {
			v, at, err = decimal(b, at)
			return v, err
		}
	}
	return func() (v int, err error) {
		size := 1
		if h.most > 255 {
			size = 2
		}
		if at+size > len(b) {
			return 0, fmt.Errorf("pnm: %w", io.ErrUnexpectedEOF)
		}
		switch {
		case h.bits:
			v = int(b[at]>>(7-bit%8)) & 1
			if bit++; bit == h.width { // each row is padded to whole bytes
				bit = 0
				at++
			} else if bit%8 == 0 {
				at++
			}
			return v, nil
		case size == 2:
			v = int(b[at])<<8 | int(b[at+1])
		default:
			v = int(b[at])
		}
		at += size
		return v, nil
	}
}
