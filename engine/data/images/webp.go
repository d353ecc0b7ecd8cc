package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"

	"github.com/hetero-train/hetero-train/engine/data"
)

// errWebPVariant is the error for a WebP image whose contents this package cannot read.
var errWebPVariant = errors.New("webp: no image data in a known format (VP8, VP8L)")

// webp locates the first image of a WebP file.
type webp struct {
	width, height int    // size of the canvas in pixels; 0: the size of the image
	x, y          int    // position of the image on the canvas
	pixels        []byte // encoded image
	lossless      bool   // the image has the format VP8L, otherwise VP8
	exif, xmp     []byte
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

// readWebP finds the parts of a WebP file. The caller has called formatOf.
func readWebP(b []byte) (w webp, err error) {
	found := func(kind string, c []byte) {
		if w.pixels == nil && (kind == "VP8 " || kind == "VP8L") {
			w.pixels, w.lossless = c, kind == "VP8L"
		}
	}
	const frameHeader = 16 // bytes
	err = riff(b[12:], func(kind string, c []byte) bool {
		switch {
		case kind == "VP8X" && len(c) >= 10:
			w.width, w.height = uint24(c[4:])+1, uint24(c[7:])+1
		case kind == "ANMF" && len(c) >= frameHeader && w.pixels == nil:
			w.x, w.y = 2*uint24(c), 2*uint24(c[3:])
			riff(c[frameHeader:], func(kind string, c []byte) bool { // if the frame is truncated, it has no pixels
				found(kind, c)
				return w.pixels == nil
			})
		case kind == "EXIF":
			w.exif = bytes.TrimPrefix(c, []byte("Exif\x00\x00"))
		case kind == "XMP ":
			w.xmp = c
		default:
			found(kind, c)
		}
		return true
	})
	if err == nil && w.pixels == nil {
		err = errWebPVariant
	}
	return w, err
}

// size returns the size of the image, without the canvas.
func (w *webp) size() (width, height int, err error) {
	if w.lossless {
		c, err := vp8l.DecodeConfig(bytes.NewReader(w.pixels))
		return c.Width, c.Height, err
	}
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(w.pixels), len(w.pixels))
	h, err := d.DecodeFrameHeader()
	if err == nil && !h.KeyFrame {
		err = errors.New("webp: the first image is no key frame")
	}
	return h.Width, h.Height, err
}

// decodeWebP decodes the first image of a WebP file. The pixels are bit-equal to those of libwebp.
func (d *Decoder) decodeWebP(contents []byte, img *data.Image) error {
	w, err := readWebP(contents)
	if err != nil {
		return err
	}
	width, height, err := w.size()
	if err != nil {
		return err
	}
	if w.width == 0 {
		w.width, w.height = width, height
	}
	if w.x+width > w.width || w.y+height > w.height {
		return fmt.Errorf("webp: image of %d x %d pixels at (%d, %d), want at most the canvas of %d x %d", width,
			height, w.x, w.y, w.width, w.height)
	}
	if err := d.checkSize(w.width, w.height); err != nil {
		return err
	}
	d.pix = grow(d.pix, 3*w.width*w.height)
	if width != w.width || height != w.height {
		clear(d.pix) // the canvas is black
	}
	dst := rows{d.pix[3*(w.y*w.width+w.x):], 3 * w.width}
	if w.lossless {
		decoded, err := vp8l.Decode(bytes.NewReader(w.pixels))
		if err != nil {
			return err
		}
		picture, ok := decoded.(*image.NRGBA)
		if !ok {
			return fmt.Errorf("webp: the image has the type %T", decoded)
		}
		for y := range height {
			row := dst.row(y)
			for x := range width {
				copy(row[3*x:3*x+3], picture.Pix[y*picture.Stride+4*x:])
			}
		}
	} else {
		if d.vp8 == nil {
			d.vp8 = vp8.NewDecoder()
		}
		d.vp8.Init(bytes.NewReader(w.pixels), len(w.pixels))
		if _, err := d.vp8.DecodeFrameHeader(); err != nil {
			return err
		}
		decoded, err := d.vp8.DecodeFrame()
		if err != nil {
			return err
		}
		fromVideo(dst, decoded, width, height)
	}
	*img = data.Image{Pix: d.pix, Width: w.width, Height: w.height, FullWidth: w.width, FullHeight: w.height}
	return nil
}

// rows are the rows of an RGB image, 3 bytes per pixel.
type rows struct {
	pix    []byte
	stride int // bytes
}

func (r rows) row(y int) []byte { return r.pix[y*r.stride:] }

// fromVideo converts an image whose chroma has half the width and height to RGB. Each chroma sample is in the middle of
// four pixels. It is interpolated with the weights 9/16, 3/16, 3/16 and 1/16. The order of operations is that of
// libwebp, so that the pixels are bit-equal.
func fromVideo(dst rows, src *image.YCbCr, width, height int) {
	half := (height + 1) / 2
	for y := range height {
		near := y / 2
		far := max(near-1, 0)
		if y%2 == 1 {
			far = min(near+1, half-1)
		}
		luma := src.Y[y*src.YStride:][:width]
		convertRow(dst.row(y), luma,
			chroma{src.Cb[near*src.CStride:], src.Cb[far*src.CStride:]},
			chroma{src.Cr[near*src.CStride:], src.Cr[far*src.CStride:]})
	}
}

// chroma contains the two rows of chroma samples that determine a row of pixels.
type chroma struct{ near, far []byte }

// edge returns the chroma of a pixel at the left or right edge.
func (c chroma) edge(x int) int { return (3*int(c.near[x]) + int(c.far[x]) + 2) >> 2 }

// pair returns the chroma of the two pixels between the chroma samples x-1 and x.
func (c chroma) pair(x int) (left, right int) {
	nearLeft, near, farLeft, far := int(c.near[x-1]), int(c.near[x]), int(c.far[x-1]), int(c.far[x])
	sum := nearLeft + near + farLeft + far + 8
	rising, falling := (sum+2*(near+farLeft))>>3, (sum+2*(nearLeft+far))>>3
	return (rising + nearLeft) >> 1, (falling + near) >> 1
}

// convertRow converts one row of pixels.
func convertRow(dst, luma []byte, u, v chroma) {
	width := len(luma)
	dst = dst[:3*width]
	put(dst, luma[0], u.edge(0), v.edge(0))
	for k := 1; k <= (width-1)/2; k++ {
		u0, u1 := u.pair(k)
		v0, v1 := v.pair(k)
		two := dst[6*k-3 : 6*k+3 : 6*k+3]
		put(two, luma[2*k-1], u0, v0)
		put(two[3:], luma[2*k], u1, v1)
	}
	if width%2 == 0 {
		last := width/2 - 1
		put(dst[3*width-3:], luma[width-1], u.edge(last), v.edge(last))
	}
}

// put converts a pixel, with the coefficients of libwebp.
func put(dst []byte, luma byte, u, v int) {
	y := int(luma) * 19077 >> 8
	_ = dst[2]
	dst[0] = clip6(y + v*26149>>8 - 14234)
	dst[1] = clip6(y - u*6419>>8 - v*13320>>8 + 8708)
	dst[2] = clip6(y + u*33050>>8 - 17685)
}

// clip6 returns the integer part of a number with 6 binary places, limited to 0 … 255.
func clip6(v int) byte { return byte(min(max(v, 0)>>6, 255)) }
