package images

import (
	"encoding/binary"

	"golang.org/x/image/bmp"

	"github.com/hetero-train/hetero-train/engine/data"
)

// decodeBMP decodes a BMP image.
func (d *Decoder) decodeBMP(contents []byte, img *data.Image) error {
	if d.decodePlainBMP(contents, img) {
		return nil
	}
	return d.decodeWith(bmp.Decode, bmp.DecodeConfig, contents, img)
}

// decodePlainBMP decodes a BMP image with 24 or 32 bits per pixel. It returns false for all other images, and for all
// faults; package bmp then decodes the image, or reports the error.
func (d *Decoder) decodePlainBMP(b []byte, img *data.Image) bool {
	const fileHeader, shortHeader = 14, 40 // bytes
	if len(b) < fileHeader+shortHeader {
		return false
	}
	number := func(at int) int { return int(int32(binary.LittleEndian.Uint32(b[at:]))) }
	start, header, width, height := number(10), number(14), number(18), number(22)
	planes, bits, compression := binary.LittleEndian.Uint16(b[26:]), binary.LittleEndian.Uint16(b[28:]), number(30)
	if header != 40 && header != 108 && header != 124 || start != fileHeader+header || len(b) < start || planes != 1 ||
		compression != 0 || bits != 24 && bits != 32 {
		return false
	}
	topDown := height < 0
	if topDown {
		height = -height
	}
	if d.checkSize(width, height) != nil {
		return false
	}
	pixel := int(bits) / 8
	stride := (width*pixel + 3) &^ 3
	rows := b[start:]
	if len(rows)/stride < height {
		return false
	}
	d.pix = grow(d.pix, 3*width*height)
	for y := range height {
		at := height - 1 - y
		if topDown {
			at = y
		}
		swapColours(d.pix[3*width*y:][:3*width], rows[stride*at:][:width*pixel], pixel)
	}
	*img = data.Image{Pix: d.pix, Width: width, Height: height, FullWidth: width, FullHeight: height}
	return true
}

// swapColours converts a row of blue, green, red and unused bytes. The parameter pixel is the number of bytes per pixel
// in src.
func swapColours(dst, src []byte, pixel int) {
	if pixel == 4 {
		for len(dst) >= 3 && len(src) >= 4 {
			dst[0], dst[1], dst[2] = src[2], src[1], src[0]
			dst, src = dst[3:], src[4:]
		}
		return
	}
	src = src[:len(dst)]
	for i := 0; i+2 < len(dst); i += 3 {
		blue, green, red := src[i], src[i+1], src[i+2]
		dst[i], dst[i+1], dst[i+2] = red, green, blue
	}
}
