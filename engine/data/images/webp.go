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
	d.useLibrary(decodedBytes * int64(width) * int64(height))
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
			dropAlpha(dst.row(y)[:3*width], picture.Pix[y*picture.Stride:][:4*width])
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
		convertRow(dst.row(y), luma, &chromaRows{src.Cb[near*src.CStride:], src.Cr[near*src.CStride:],
			src.Cb[far*src.CStride:], src.Cr[far*src.CStride:]})
	}
}

// dropAlpha copies the colours of a row of red, green, blue and opacity.
func dropAlpha(dst, src []byte) {
	for len(dst) >= 3 && len(src) >= 4 {
		dst[0], dst[1], dst[2] = src[0], src[1], src[2]
		dst, src = dst[3:], src[4:]
	}
}

// chroma is a blue and a red chroma sample: bits 0 to 15 and 16 to 31. Sums of a few samples do not overflow into the
// other one.
type chroma uint32

func chromaOf(blue, red byte) chroma { return chroma(blue) | chroma(red)<<16 }

func (c chroma) values() (blue, red int) { return int(c & 0xff), int(c >> 16 & 0xff) }

// chromaRows are the two rows of chroma samples that determine a row of pixels.
type chromaRows struct{ nearBlue, nearRed, farBlue, farRed []byte }

func (c *chromaRows) near(x int) chroma { return chromaOf(c.nearBlue[x], c.nearRed[x]) }

func (c *chromaRows) far(x int) chroma { return chromaOf(c.farBlue[x], c.farRed[x]) }

// edge returns the chroma of a pixel at the left or right edge.
func (c *chromaRows) edge(x int) chroma { return (3*c.near(x) + c.far(x) + 0x00020002) >> 2 }

// convertRow converts one row of pixels.
func convertRow(dst, luma []byte, c *chromaRows) {
	width := len(luma)
	dst = dst[:3*width]
	put(dst, luma[0], c.edge(0))
	pairs := (width - 1) / 2
	nearBlue, nearRed := c.nearBlue[:pairs+1], c.nearRed[:pairs+1]
	farBlue, farRed := c.farBlue[:pairs+1], c.farRed[:pairs+1]
	nearLeft, farLeft := c.near(0), c.far(0)
	for k := 1; k <= pairs; k++ { // two pixels between the chroma samples k-1 and k
		near, far := chromaOf(nearBlue[k], nearRed[k]), chromaOf(farBlue[k], farRed[k])
		sum := nearLeft + near + farLeft + far + 0x00080008
		rising, falling := (sum+2*(near+farLeft))>>3, (sum+2*(nearLeft+far))>>3
		two, y := dst[6*k-3:6*k+3:6*k+3], luma[2*k-1:2*k+1:2*k+1]
		put(two, y[0], (rising+nearLeft)>>1)
		put(two[3:], y[1], (falling+near)>>1)
		nearLeft, farLeft = near, far
	}
	if width%2 == 0 {
		put(dst[3*width-3:], luma[width-1], c.edge(width/2-1))
	}
}

// put converts a pixel, with the coefficients of libwebp.
func put(dst []byte, luma byte, c chroma) {
	u, v := c.values()
	y := int(luma) * 19077 >> 8
	_ = dst[2]
	dst[0] = clip6(y + v*26149>>8 - 14234)
	dst[1] = clip6(y - u*6419>>8 - v*13320>>8 + 8708)
	dst[2] = clip6(y + u*33050>>8 - 17685)
}

// clip6 returns the integer part of a number with 6 binary places, limited to 0 … 255.
func clip6(v int) byte {
	if uint(v) < 256<<6 { // most values
		return byte(v >> 6)
	}
	return byte(^(v >> 63))
}
