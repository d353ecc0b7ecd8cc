package images

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
	"unicode"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/webp"
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

// OrientationOf reads the tag of a JPEG, PNG or WebP image from EXIF, or from XMP if EXIF lacks the tag. If the tag is
// missing or invalid, it returns Upright, because image viewers then show the image as stored. It returns Upright for
// TIFF, because Decode always rotates TIFF images.
func OrientationOf(contents []byte) Orientation {
	var exif, xmp []byte
	switch formatOf(contents) {
	case jpegFormat:
		exif, xmp = segmentOf(contents, "Exif\x00\x00"), segmentOf(contents, "http://ns.adobe.com/xap/1.0/\x00")
	case pngFormat:
		if exif = chunkOf(contents, "eXIf"); exif == nil {
			exif = profileOf(textOf(contents, "Raw profile type exif", "Raw profile type APP1"))
		}
		xmp = textOf(contents, "XML:com.adobe.xmp")
	case webpFormat:
		f, err := webp.Parse(contents)
		if err != nil {
			return Upright // Decode reports the error
		}
		exif, xmp = f.EXIF, f.XMP
	}
	o, found := orientationIn(exif)
	if !found {
		o = orientationInXMP(xmp)
	}
	return o
}

// segmentOf returns the contents of the first APP1 segment that starts with prefix, without the prefix.
func segmentOf(b []byte, prefix string) []byte {
	for at := 2; at+4 <= len(b) && b[at] == 0xFF; {
		marker, length := b[at+1], int(binary.BigEndian.Uint16(b[at+2:]))
		switch {
		case marker == 0xFF: // padding
			at++
			continue
		case marker == 0xDA, length < 2, at+2+length > len(b): // start of the image data, or a damaged file
			return nil
		}
		if rest, ok := bytes.CutPrefix(b[at+4:at+2+length], []byte(prefix)); marker == 0xE1 && ok {
			return rest
		}
		at += 2 + length
	}
	return nil
}

// chunkOf returns the contents of the first chunk of this kind in a PNG image.
func chunkOf(b []byte, kind string) []byte {
	for c := range chunks(b) {
		if c.kind == kind {
			return c.contents
		}
	}
	return nil
}

// mostText limits the number of bytes that are read from a text in a PNG image. A compressed text may expand to much
// more.
const mostText = 1 << 20

// textOf returns the first mostText bytes of the first text in a PNG image with one of these keywords.
func textOf(b []byte, keywords ...string) []byte {
	for c := range chunks(b) {
		keyword, rest, ok := bytes.Cut(c.contents, []byte{0})
		if !ok || !slices.Contains(keywords, string(keyword)) {
			continue
		}
		switch {
		case c.kind == "tEXt":
			return rest[:min(len(rest), mostText)]
		case c.kind == "zTXt" && len(rest) > 1:
			return inflate(rest[1:]) // after the compression method
		case c.kind == "iTXt" && len(rest) > 2:
			packed := rest[0] == 1
			_, rest, _ = bytes.Cut(rest[2:], []byte{0})        // language
			if _, rest, ok = bytes.Cut(rest, []byte{0}); !ok { // translated keyword
				continue
			}
			if packed {
				return inflate(rest)
			}
			return rest[:min(len(rest), mostText)]
		}
	}
	return nil
}

// inflate returns the first mostText bytes of a compressed text, or the bytes before the first error.
func inflate(b []byte) []byte {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(r, mostText))
	return text
}

// profileOf returns the bytes of a profile that ImageMagick has written as text: name, length and hexadecimal digits.
func profileOf(text []byte) []byte {
	lines := bytes.SplitN(bytes.TrimSpace(text), []byte("\n"), 3)
	if len(lines) < 3 {
		return nil
	}
	digits := bytes.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, lines[2])
	n, _ := hex.Decode(digits, digits) // decodes the digits before the first error
	return digits[:n]
}

// orientationIn reads the tag from the first directory of a TIFF structure. The result found is true if the tag exists,
// even if its value is invalid.
func orientationIn(b []byte) (o Orientation, found bool) {
	b = bytes.TrimPrefix(b, []byte("Exif\x00\x00")) // some programs write this prefix also into PNG images
	n, found := tagOf(b, 0x0112)
	if !found {
		return Upright, false
	}
	return valid(n), true
}

// tagOf returns the first number of a tag in the first directory of a TIFF structure.
func tagOf(b []byte, tag uint16) (n uint32, found bool) {
	if len(b) < 8 {
		return 0, false
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[0] == 'I' {
		order = binary.LittleEndian
	}
	at := int64(order.Uint32(b[4:]))
	if order.Uint16(b[2:]) != 42 || at+2 > int64(len(b)) {
		return 0, false
	}
	entries := b[at+2:]
	for n := order.Uint16(b[at:]); n > 0 && len(entries) >= 12; n-- {
		if order.Uint16(entries) == tag {
			return number(order, entries), true
		}
		entries = entries[12:]
	}
	return 0, false
}

// number returns the first number of a directory entry; 0 if the entry has another type.
func number(order binary.ByteOrder, entry []byte) uint32 {
	const ( // the standard requires the type short, but some programs write other types
		byteType, signedByteType   = 1, 6
		shortType, signedShortType = 3, 8
		longType, signedLongType   = 4, 9
	)
	switch order.Uint16(entry[2:]) {
	case byteType, signedByteType:
		return uint32(entry[8])
	case shortType, signedShortType:
		return uint32(order.Uint16(entry[8:]))
	case longType, signedLongType:
		return order.Uint32(entry[8:])
	}
	return 0
}

// orientationInXMP reads tiff:Orientation, which is an attribute or an element.
func orientationInXMP(xmp []byte) Orientation {
	const name = "tiff:Orientation"
	for {
		at := bytes.Index(xmp, []byte(name))
		if at < 0 {
			return Upright
		}
		xmp = xmp[at+len(name):]
		value := bytes.TrimLeft(xmp, "= \t\r\n")
		if len(value) < 3 || !bytes.ContainsRune([]byte(`"'>`), rune(value[0])) {
			continue
		}
		if end := value[2]; end == '<' || end == value[0] {
			return valid(uint32(value[1]) - '0')
		}
	}
}

func valid(n uint32) Orientation {
	if n < uint32(Upright) || n > uint32(TurnLeft) {
		return Upright
	}
	return Orientation(n)
}

// apply rotates img upright. The result is in buf if buf is large enough; apply returns the buffer of the result.
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

// swapped is the Sizer for use before the rotation: it exchanges width and height.
type swapped struct{ data.Sizer }

// MinSize calls the Sizer with width and height exchanged.
func (s swapped) MinSize(width, height int) (int, int) {
	h, w := s.Sizer.MinSize(height, width)
	return w, h
}
