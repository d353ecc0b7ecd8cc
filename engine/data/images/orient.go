package images

import (
	"bytes"
	"encoding/binary"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Orientation is the value of the EXIF tag 0x0112: the rotation and reflection that make a stored image upright.
type Orientation uint8

// The orientations of the EXIF standard, named after the required operation.
const (
	Upright       Orientation = 1
	MirrorX       Orientation = 2 // swap left and right
	Turn180       Orientation = 3
	MirrorY       Orientation = 4 // swap top and bottom
	Transpose     Orientation = 5 // swap rows and columns
	TurnRight     Orientation = 6 // by 90 degrees
	AntiTranspose Orientation = 7
	TurnLeft      Orientation = 8 // by 90 degrees
)

// swaps reports whether the orientation exchanges width and height.
func (o Orientation) swaps() bool { return o >= Transpose }

// OrientationOf reads the tag of a JPEG or PNG image. If the tag is missing or invalid, it returns Upright, because
// image viewers then show the image as stored.
func OrientationOf(contents []byte) Orientation {
	var exif []byte
	if bytes.HasPrefix(contents, []byte("\xFF\xD8")) {
		exif = exifOfJPEG(contents)
	} else {
		exif = exifOfPNG(contents)
	}
	return orientationIn(exif)
}

// exifOfJPEG returns the TIFF structure in the APP1 segment.
func exifOfJPEG(b []byte) []byte {
	for at := 2; at+4 <= len(b) && b[at] == 0xFF; {
		marker, length := b[at+1], int(binary.BigEndian.Uint16(b[at+2:]))
		switch {
		case marker == 0xFF: // padding
			at++
			continue
		case marker == 0xDA, length < 2, at+2+length > len(b): // start of the image data, or a damaged file
			return nil
		}
		segment := b[at+4 : at+2+length]
		if rest, ok := bytes.CutPrefix(segment, []byte("Exif\x00\x00")); marker == 0xE1 && ok {
			return rest
		}
		at += 2 + length
	}
	return nil
}

// exifOfPNG returns the contents of the eXIf chunk.
func exifOfPNG(b []byte) []byte {
	for at := 8; at+8 <= len(b); {
		length, kind := int64(binary.BigEndian.Uint32(b[at:])), string(b[at+4:at+8])
		if kind == "IEND" || int64(at)+12+length > int64(len(b)) {
			return nil
		}
		if kind == "eXIf" {
			return b[at+8 : at+8+int(length)]
		}
		at += 12 + int(length)
	}
	return nil
}

// orientationIn reads the tag from the first directory of a TIFF structure.
func orientationIn(b []byte) Orientation {
	if len(b) < 8 {
		return Upright
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[0] == 'I' {
		order = binary.LittleEndian
	}
	at := int64(order.Uint32(b[4:]))
	if order.Uint16(b[2:]) != 42 || at+2 > int64(len(b)) {
		return Upright
	}
	entries := b[at+2:]
	for n := order.Uint16(b[at:]); n > 0 && len(entries) >= 12; n-- {
		const short = 3
		if order.Uint16(entries) == 0x0112 && order.Uint16(entries[2:]) == short {
			if o := order.Uint16(entries[8:]); o >= 1 && o <= 8 {
				return Orientation(o)
			}
			return Upright
		}
		entries = entries[12:]
	}
	return Upright
}

// apply makes img upright. The result is in buf if buf is large enough; apply returns the buffer used.
func (o Orientation) apply(buf []byte, img *data.Image) []byte {
	w, h := img.Width, img.Height // as stored
	buf = grow(buf, len(img.Pix))
	width := w
	if o.swaps() {
		width = h
	}
	for y := range h {
		for x := range w {
			X, Y := x, y
			switch o {
			case MirrorX:
				X = w - 1 - x
			case Turn180:
				X, Y = w-1-x, h-1-y
			case MirrorY:
				Y = h - 1 - y
			case Transpose:
				X, Y = y, x
			case TurnRight:
				X, Y = h-1-y, x
			case AntiTranspose:
				X, Y = h-1-y, w-1-x
			case TurnLeft:
				X, Y = y, w-1-x
			}
			copy(buf[3*(Y*width+X):][:3], img.Pix[3*(y*w+x):][:3])
		}
	}
	img.Pix = buf
	if o.swaps() {
		img.Width, img.Height = img.Height, img.Width
		img.FullWidth, img.FullHeight = img.FullHeight, img.FullWidth
	}
	return buf
}

// swapped is the Sizer to use before the rotation, with width and height exchanged.
type swapped struct{ data.Sizer }

// MinSize calls the Sizer with width and height exchanged.
func (s swapped) MinSize(width, height int) (int, int) {
	h, w := s.Sizer.MinSize(height, width)
	return w, h
}
