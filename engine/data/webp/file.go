package webp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
)

// ErrVariant is the error of a WebP file whose contents this package cannot read.
var ErrVariant = errors.New("webp: no image data in a known format (VP8, VP8L)")

// File locates the first image of a WebP file.
type File struct {
	EXIF, XMP []byte

	width, height int    // of the canvas in pixels; 0: the size of the image
	x, y          int    // position of the image on the canvas
	pixels        []byte // encoded image
	lossless      bool   // the image has the format VP8L, otherwise VP8

	huffman *huffman // result of codes for a lossless image; nil: codes was not called
	invalid error    // error of codes
}

// riff calls visit for each chunk until visit returns false. It returns an error for a truncated chunk.
func riff(b []byte, visit func(kind string, contents []byte) bool) error {
	for len(b) >= 8 {
		kind, length := string(b[:4]), int64(binary.LittleEndian.Uint32(b[4:]))
		b = b[8:]
		if length > int64(len(b)) {
			if kind == "EXIF" || kind == "XMP " {
				return nil // after the image
			}
			return fmt.Errorf("webp: chunk %q: %w", kind, io.ErrUnexpectedEOF)
		}
		if !visit(kind, b[:length]) {
			return nil
		}
		b = b[min(length+length%2, int64(len(b))):]
	}
	return nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

const riffHeader = 12 // bytes: RIFF, size, WEBP

// Is reports whether contents begins like a WebP file.
func Is(contents []byte) bool {
	return len(contents) >= riffHeader && string(contents[:4]) == "RIFF" && string(contents[8:riffHeader]) == "WEBP"
}

// Parse finds the parts of a WebP file. Is(contents) must be true. The File refers to contents.
func Parse(contents []byte) (f File, err error) {
	found := func(kind string, c []byte) {
		if f.pixels == nil && (kind == "VP8 " || kind == "VP8L") {
			f.pixels, f.lossless = c, kind == "VP8L"
		}
	}
	const frameHeader = 16 // bytes
	err = riff(contents[riffHeader:], func(kind string, c []byte) bool {
		switch {
		case kind == "VP8X" && len(c) >= 10:
			f.width, f.height = uint24(c[4:])+1, uint24(c[7:])+1
		case kind == "ANMF" && len(c) >= frameHeader && f.pixels == nil:
			f.x, f.y = 2*uint24(c), 2*uint24(c[3:])
			riff(c[frameHeader:], func(kind string, c []byte) bool { // if the frame is truncated, it has no pixels
				found(kind, c)
				return f.pixels == nil
			})
		case kind == "EXIF":
			f.EXIF = bytes.TrimPrefix(c, []byte("Exif\x00\x00"))
		case kind == "XMP ":
			f.XMP = c
		default:
			found(kind, c)
		}
		return true
	})
	if err == nil && f.pixels == nil {
		err = ErrVariant
	}
	return f, err
}

// size returns the size of the image, without the canvas.
func (f *File) size() (width, height int, err error) {
	if f.lossless {
		c, err := vp8l.DecodeConfig(bytes.NewReader(f.pixels))
		return c.Width, c.Height, err
	}
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(f.pixels), len(f.pixels))
	h, err := d.DecodeFrameHeader()
	if err == nil && !h.KeyFrame {
		err = errors.New("webp: the first image is no key frame")
	}
	return h.Width, h.Height, err
}

// Canvas returns the size of the decoded image: that of the animation, if the file has one.
func (f *File) Canvas() (width, height int, err error) {
	width, height, err = f.size()
	return cmp.Or(f.width, width), cmp.Or(f.height, height), err
}

// codes returns the result of readHuffman for a lossless image.
func (f *File) codes() (huffman, error) {
	if f.huffman == nil {
		width, height, err := f.size()
		if err != nil {
			return huffman{}, err
		}
		f.huffman = new(huffman)
		*f.huffman, f.invalid = readHuffman(f.pixels, width, height)
	}
	return *f.huffman, f.invalid
}

// WorkBytes returns the memory that Decode needs in addition to the pixels, for an image of this canvas. For a lossy
// image, it is the memory of Go, which also decodes the images that libwebp refuses; libwebp needs less.
func (f *File) WorkBytes(width, height int) int64 {
	pixels := int64(width) * int64(height)
	if !f.lossless {
		return 2 * pixels // luminance, and colours of half the size
	}
	if InUse().Native && f.suitsLibrary() {
		return 4*pixels + f.huffman.bytes()
	}
	return 4 * pixels
}
