package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/data/webp"
)

// DecodeOptions configure a Decoder.
type DecodeOptions struct {
	MaxPixels int // largest number of pixels of an image; 0 means 64 Mi
	// Orient applies the EXIF orientation. Pillow, and therefore torchvision's ImageFolder, does not apply it.
	Orient bool
}

// Decoder decodes images into buffers that it reuses. It is not safe for concurrent use.
type Decoder struct {
	o      DecodeOptions
	jpeg   *jpeg.Decoder
	webp   *webp.Decoder
	pix    []byte
	turned []byte // buffer for the rotated image
	// upright is the buffer for a TIFF, which is always rotated; Orient may need the buffer turned for another rotation
	upright []byte

	inflater inflater
	lzw      *lzw   // nil before the first image that needs it
	packed   []byte // compressed pixels of a PNG image
	rows     []byte // filtered rows of a PNG image, or a strip of a TIFF image

	library int64 // memory of the library that decodes the current image, bytes
	counted int64 // memory that is part of DecoderBytes
}

// NewDecoder returns a Decoder, which must be closed.
func NewDecoder(o DecodeOptions) (*Decoder, error) {
	if o.MaxPixels == 0 {
		o.MaxPixels = defaultMaxPixels
	}
	w, err := webp.NewDecoder()
	if err != nil {
		return nil, err
	}
	j, err := jpeg.NewDecoder()
	if err != nil {
		return nil, err
	}
	return &Decoder{o: o, jpeg: j, webp: w}, nil
}

// Close frees the decoder's buffers.
func (d *Decoder) Close() {
	d.jpeg.Close()
	d.count(0)
}

// Read decodes the contents that the function fetch returns. fetch also returns the duration of the fetch. If a crafted
// file makes a decoder panic, Read returns an error, to which the caller can add the name of the file.
func (d *Decoder) Read(fetch func() ([]byte, time.Duration, error), sizer data.Sizer, img *data.Image) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("decoder panicked: %v", p))
		}
	}()
	contents, fetched, err := fetch()
	if err != nil {
		return err
	}
	err = d.Decode(contents, sizer, img)
	img.EncodedBytes, img.Fetched, img.Contents = len(contents), fetched, contents
	return err
}

// Decode decodes the image in contents into img. The rules of data.Reader.Read apply.
func (d *Decoder) Decode(contents []byte, sizer data.Sizer, img *data.Image) (err error) {
	decoded := false // remains false if a decoder panics
	defer func() { d.finish(!decoded || err != nil) }()
	o := Upright
	if d.o.Orient {
		o = OrientationOf(contents)
	}
	if o == Upright {
		err = d.decode(contents, sizer, img)
		decoded = true
		return err
	}
	if sizer != nil && o.swaps() {
		sizer = swapped{sizer}
	}
	if err := d.decode(contents, sizer, img); err != nil {
		return err
	}
	d.turned = o.apply(d.turned, img)
	decoded = true
	return nil
}

func (d *Decoder) checkSize(width, height int) error {
	if width < 1 || height < 1 || width > d.o.MaxPixels/height {
		return fmt.Errorf("image of %d x %d pixels, want at most %d in all (data.max_pixels; %d would accept this image)",
			width, height, d.o.MaxPixels, int64(width)*int64(height))
	}
	return nil
}

func (d *Decoder) decodeJPEG(contents []byte, sizer data.Sizer, img *data.Image) error {
	h, err := d.jpeg.Header(contents)
	if err != nil {
		return err
	}
	if err := d.checkSize(h.Width, h.Height); err != nil {
		return err
	}
	denominator := 1
	if sizer != nil && h.Width*h.Height > data.FullDecodePixels {
		w, hh := sizer.MinSize(h.Width, h.Height)
		denominator = largestDenominator(h.Width, h.Height, w, hh)
	}
	d.useLibrary(h.WorkBytes())
	pix, width, height, err := d.jpeg.Decode(contents, h, denominator, d.pix)
	if err != nil {
		return err
	}
	d.pix = pix[:cap(pix)]
	*img = data.Image{Pix: pix, Width: width, Height: height, FullWidth: h.Width, FullHeight: h.Height}
	return nil
}

// largestDenominator returns the largest of 8, 4, 2 and 1 for which the reduced image has at least minWidth x
// minHeight pixels.
func largestDenominator(width, height, minWidth, minHeight int) int {
	for d := 8; d > 1; d /= 2 {
		if (width+d-1)/d >= minWidth && (height+d-1)/d >= minHeight {
			return d
		}
	}
	return 1
}

// decodedBytes is the number of bytes per pixel in the images that packages such as image/png return.
const decodedBytes = 4

// decodeWith decodes an image with the functions of a package for one format.
func (d *Decoder) decodeWith(decode func(io.Reader) (image.Image, error), size func(io.Reader) (image.Config, error),
	contents []byte, img *data.Image) error {
	c, err := size(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	if err := d.checkSize(c.Width, c.Height); err != nil {
		return err
	}
	pixel := int64(decodedBytes)
	if c.ColorModel == color.RGBA64Model || c.ColorModel == color.NRGBA64Model {
		pixel = 2 * decodedBytes // 16 bits per channel
	}
	d.useLibrary(pixel * int64(c.Width) * int64(c.Height))
	decoded, err := decode(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	d.flattened(decoded, img)
	return nil
}

// flattened sets img to the colours of a decoded image, without transparency.
func (d *Decoder) flattened(decoded image.Image, img *data.Image) {
	width, height := decoded.Bounds().Dx(), decoded.Bounds().Dy()
	d.pix = grow(d.pix, 3*width*height)
	flatten(d.pix, decoded)
	*img = data.Image{Pix: d.pix, Width: width, Height: height, FullWidth: width, FullHeight: height}
}

// flatten writes the colours of img to pix and drops transparency. It does not blend the colours with a background.
func flatten(pix []byte, img image.Image) {
	b := img.Bounds()
	row := 3 * b.Dx()
	var colours [256][3]byte
	if paletted, ok := img.(*image.Paletted); ok {
		colours = paletteOf(paletted.Palette)
	}
	for y := range b.Dy() {
		dst := pix[y*row:][:row]
		switch img := img.(type) {
		case *image.RGBA: // opaque, or a TIFF whose colours are premultiplied by their opacity
			src := img.Pix[y*img.Stride:]
			for i, j := 0, 0; i < len(dst); i, j = i+3, j+4 {
				p := src[j : j+4 : j+4]
				dst[i], dst[i+1], dst[i+2] = divided(p[0], p[3]), divided(p[1], p[3]), divided(p[2], p[3])
			}
		case *image.NRGBA:
			src := img.Pix[y*img.Stride:]
			for i, j := 0, 0; i < len(dst); i, j = i+3, j+4 {
				p := src[j : j+4 : j+4]
				dst[i], dst[i+1], dst[i+2] = p[0], p[1], p[2]
			}
		case *image.Gray:
			for x, v := range img.Pix[y*img.Stride:][:b.Dx()] {
				dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
			}
		case *image.Paletted:
			for x, v := range img.Pix[y*img.Stride:][:b.Dx()] {
				copy(dst[3*x:3*x+3], colours[v][:])
			}
		default:
			flattenRow(dst, img, b.Min.Y+y)
		}
	}
}

// flattenRow writes the colours of a row of an image with 16 bits per channel.
func flattenRow(dst []byte, img image.Image, y int) {
	x := img.Bounds().Min.X
	for i := 0; i < len(dst); i, x = i+3, x+1 {
		var c color.NRGBA
		if deep, ok := img.(*image.NRGBA64); ok {
			p := deep.NRGBA64At(x, y)
			c = color.NRGBA{R: uint8(p.R >> 8), G: uint8(p.G >> 8), B: uint8(p.B >> 8)}
		} else { // opaque
			c = color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
		}
		dst[i], dst[i+1], dst[i+2] = c.R, c.G, c.B
	}
}

// paletteOf returns the colours of a palette, without transparency. Missing colours are black.
func paletteOf(palette color.Palette) (colours [256][3]byte) {
	for i, one := range palette[:min(len(palette), len(colours))] {
		switch p := one.(type) {
		case color.RGBA: // opaque
			colours[i] = [3]byte{p.R, p.G, p.B}
		case color.NRGBA:
			colours[i] = [3]byte{p.R, p.G, p.B}
		case color.RGBA64: // opaque; occurs in TIFF images
			colours[i] = [3]byte{uint8(p.R >> 8), uint8(p.G >> 8), uint8(p.B >> 8)}
		}
	}
	return colours
}

// divided restores the original value of a colour that was premultiplied by its opacity. The result equals that of
// Pillow.
func divided(v, opacity uint8) uint8 {
	if opacity == 0 || opacity == 255 {
		return v
	}
	return uint8(min(int(v)*255/int(opacity), 255))
}
