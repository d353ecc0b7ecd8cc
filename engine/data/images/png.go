package images

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image/png"
	"io"

	"github.com/hetero-train/hetero-train/engine/data"
)

// decodePNG decodes a PNG image, even if chunks without pixels have faults.
func (d *Decoder) decodePNG(contents []byte, img *data.Image) error {
	if d.decodePlainPNG(contents, img) {
		return nil
	}
	d.release(0) // package png needs memory of the same size
	decode := func(contents []byte) error { return d.decodeWith(png.Decode, png.DecodeConfig, contents, img) }
	err := decode(contents)
	if fault := png.FormatError(""); errors.As(err, &fault) || errors.Is(err, io.ErrUnexpectedEOF) {
		if decode(pixelsOnly(contents)) == nil {
			return nil
		}
	}
	return err
}

// Colour types of PNG.
const (
	pngGrey      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGreyAlpha = 4
	pngRGBA      = 6
)

// plainPNG is a PNG image with 8 bits per channel and without interlacing.
type plainPNG struct {
	width, height int
	colour        byte
	channels      int
	palette       [256][3]byte // missing colours are black
	packed        []byte       // zlib stream of the pixels
}

// readPlainPNG reads the chunks that determine the pixels. The buffer join receives the pixels if several chunks
// contain them. The result ok is false for images of other kinds, and for all faults.
func readPlainPNG(contents, join []byte) (p plainPNG, buf []byte, ok bool) {
	parts, colours := 0, 0
	for c := range chunks(contents) {
		if c.kind != "IHDR" && c.kind != "PLTE" && c.kind != "IDAT" {
			continue
		}
		b := c.contents
		sum := binary.BigEndian.Uint32(c.whole[len(c.whole)-4:])
		if (p.width == 0) != (c.kind == "IHDR") || crc32.ChecksumIEEE(c.whole[4:len(c.whole)-4]) != sum {
			return p, join, false
		}
		switch c.kind {
		case "IHDR":
			const method, filter, interlacing = 10, 11, 12
			if len(b) != 13 || b[8] != 8 || b[method] != 0 || b[filter] != 0 || b[interlacing] != 0 {
				return p, join, false
			}
			p.width, p.height = int(int32(binary.BigEndian.Uint32(b))), int(int32(binary.BigEndian.Uint32(b[4:])))
			p.colour = b[9]
			p.channels = map[byte]int{pngGrey: 1, pngRGB: 3, pngPalette: 1, pngGreyAlpha: 2, pngRGBA: 4}[p.colour]
			if p.width < 1 || p.height < 1 || p.channels == 0 {
				return p, join, false
			}
		case "PLTE":
			if parts > 0 || len(b)%3 != 0 || len(b) == 0 || len(b) > 3*256 {
				return p, join, false
			}
			colours = len(b) / 3
			for i := range colours {
				p.palette[i] = [3]byte(b[3*i:])
			}
		case "IDAT":
			switch parts++; parts {
			case 1:
				p.packed = b
			case 2:
				join = append(append(join[:0], p.packed...), b...)
				p.packed = join
			default:
				join = append(join, b...)
				p.packed = join
			}
		}
	}
	return p, join, parts > 0 && (colours > 0) == (p.colour == pngPalette)
}

// decodePlainPNG decodes a PNG image with 8 bits per channel and without interlacing. It returns false for all other
// images, and for all faults; package png then decodes the image, or reports the error.
func (d *Decoder) decodePlainPNG(contents []byte, img *data.Image) bool {
	p, join, ok := readPlainPNG(contents, d.packed)
	d.packed = join
	if !ok || d.checkSize(p.width, p.height) != nil {
		return false
	}
	row := p.width * p.channels // bytes
	size := p.height * (1 + row)
	if size/mostDeflate > len(p.packed) {
		return false
	}
	var rows []byte
	if p.colour == pngRGB { // rows move to their place
		d.pix = grow(d.pix, size)
		rows = d.pix
	} else {
		d.rows = grow(d.rows, size)
		rows = d.rows
	}
	if !d.inflater.unpack(rows, p.packed) {
		return false
	}
	d.pix = grow(d.pix, 3*p.width*p.height)
	above := make([]byte, row)
	for y := range p.height {
		filtered := rows[y*(1+row):][:1+row]
		dst := d.pix[3*p.width*y:][:3*p.width]
		current := filtered[1:]
		kind := filtered[0]
		if p.colour == pngRGB {
			copy(dst, current)
			current = dst
		}
		if !unfilter(kind, current, above, p.channels) {
			return false
		}
		p.flatten(dst, current)
		above = current
	}
	*img = data.Image{Pix: d.pix, Width: p.width, Height: p.height, FullWidth: p.width, FullHeight: p.height}
	return true
}

// flatten converts a row to RGB, without transparency.
func (p *plainPNG) flatten(dst, row []byte) {
	switch p.colour {
	case pngGrey:
		for x, v := range row {
			pixel := dst[3*x : 3*x+3 : 3*x+3]
			pixel[0], pixel[1], pixel[2] = v, v, v
		}
	case pngGreyAlpha:
		for x := range len(row) / 2 {
			v, pixel := row[2*x], dst[3*x:3*x+3:3*x+3]
			pixel[0], pixel[1], pixel[2] = v, v, v
		}
	case pngPalette:
		for x, v := range row {
			colour, pixel := &p.palette[v], dst[3*x:3*x+3:3*x+3]
			pixel[0], pixel[1], pixel[2] = colour[0], colour[1], colour[2]
		}
	case pngRGBA:
		for x := range len(row) / 4 {
			src, pixel := row[4*x:4*x+4:4*x+4], dst[3*x:3*x+3:3*x+3]
			pixel[0], pixel[1], pixel[2] = src[0], src[1], src[2]
		}
	}
}

// Filters of PNG rows.
const (
	pngNone = iota
	pngSub
	pngUp
	pngAverage
	pngPaeth
)

// unfilter restores a row. The parameter above is the restored row above it, or zeros for the first row. The parameter
// pixel is the number of bytes per pixel. unfilter returns false for an unknown filter.
func unfilter(kind byte, row, above []byte, pixel int) bool {
	above = above[:len(row)]
	switch kind {
	case pngNone:
	case pngSub:
		for i := pixel; i < len(row); i++ {
			row[i] += row[i-pixel]
		}
	case pngUp:
		addBytes(row, above)
	case pngAverage:
		for i := range min(pixel, len(row)) {
			row[i] += above[i] / 2
		}
		for i := pixel; i < len(row); i++ {
			row[i] += byte((int(row[i-pixel]) + int(above[i])) / 2)
		}
	case pngPaeth:
		if pixel == 3 {
			unfilterPaethRGB(row, above)
			break
		}
		for channel := range pixel {
			left, corner := 0, 0 // restored values of the pixel to the left, and of the pixel above it
			for i := channel; i < len(row); i += pixel {
				up := int(above[i])
				left, corner = paeth(row[i], left, up, corner), up
				row[i] = byte(left)
			}
		}
	default:
		return false
	}
	return true
}

// addBytes adds src to dst, byte by byte and modulo 256.
func addBytes(dst, src []byte) {
	const high = 0x8080808080808080
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		a, b := binary.LittleEndian.Uint64(dst[i:]), binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(dst[i:], (a&^high+b&^high)^(a^b)&high)
	}
	for ; i < len(dst); i++ {
		dst[i] += src[i]
	}
}

// unfilterPaethRGB restores a row with three channels. The channels do not depend on each other, so the CPU can compute
// them at the same time.
func unfilterPaethRGB(row, above []byte) {
	var red, green, blue, redCorner, greenCorner, blueCorner int
	for len(row) >= 3 && len(above) >= 3 {
		redUp, greenUp, blueUp := int(above[0]), int(above[1]), int(above[2])
		red, redCorner = paeth(row[0], red, redUp, redCorner), redUp
		green, greenCorner = paeth(row[1], green, greenUp, greenCorner), greenUp
		blue, blueCorner = paeth(row[2], blue, blueUp, blueCorner), blueUp
		row[0], row[1], row[2] = byte(red), byte(green), byte(blue)
		row, above = row[3:], above[3:]
	}
}

// paeth restores a byte. It adds the neighbour that is nearest to left + up - corner; in case of a tie, the first of
// left, up and corner. It has no branches, because the CPU cannot predict them.
func paeth(filtered byte, left, up, corner int) int {
	toLeft, toUp := up-corner, left-corner
	both := abs(toLeft + toUp)
	toLeft, toUp = abs(toLeft), abs(toUp)
	nearest := corner
	if toUp <= both {
		nearest = up
	}
	if toLeft <= min(toUp, both) {
		nearest = left
	}
	return int(filtered + byte(nearest))
}

func abs(v int) int { return max(v, -v) }
