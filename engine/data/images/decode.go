package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/jpeg"
)

// DecodeOptions configure a Decoder.
type DecodeOptions struct {
	MaxPixels int // largest number of pixels of an image; 0 means 64 Mi
	// Orient applies the EXIF orientation. Pillow, and thus torchvision's ImageFolder, does not apply it.
	Orient bool
}

// Decoder decodes JPEG and PNG images into buffers that it reuses. Only one goroutine at a time may use it.
type Decoder struct {
	o      DecodeOptions
	jpeg   *jpeg.Decoder
	pix    []byte
	turned []byte // buffer for the rotated image
}

// NewDecoder returns a Decoder, which must be closed.
func NewDecoder(o DecodeOptions) (*Decoder, error) {
	if o.MaxPixels == 0 {
		o.MaxPixels = defaultMaxPixels
	}
	j, err := jpeg.NewDecoder()
	if err != nil {
		return nil, err
	}
	return &Decoder{o: o, jpeg: j}, nil
}

// Close frees the decoder's buffers.
func (d *Decoder) Close() { d.jpeg.Close() }

// Decode decodes the image in contents into img. The rules of data.Reader.Read apply.
func (d *Decoder) Decode(contents []byte, sizer data.Sizer, img *data.Image) error {
	o := Upright
	if d.o.Orient {
		o = OrientationOf(contents)
	}
	if o == Upright {
		return d.decode(contents, sizer, img)
	}
	if sizer != nil && o.swaps() {
		sizer = swapped{sizer}
	}
	if err := d.decode(contents, sizer, img); err != nil {
		return err
	}
	d.turned = o.apply(d.turned, img)
	return nil
}

func (d *Decoder) decode(contents []byte, sizer data.Sizer, img *data.Image) error {
	switch {
	case bytes.HasPrefix(contents, []byte("\xFF\xD8")):
		return d.decodeJPEG(contents, sizer, img)
	case bytes.HasPrefix(contents, []byte(pngStart)):
		err := d.decodePNG(contents, img)
		if fault := png.FormatError(""); errors.As(err, &fault) || errors.Is(err, io.ErrUnexpectedEOF) {
			if d.decodePNG(pixelsOnly(contents), img) == nil {
				return nil
			}
		}
		return err
	case len(contents) == 0:
		return errors.New("empty file")
	}
	return otherFormat(contents)
}

// otherFormat returns the error about an image that is neither JPEG nor PNG.
func otherFormat(contents []byte) error {
	for _, f := range []struct{ start, then, name string }{
		{"RIFF", "WEBP", "WebP"}, {"GIF8", "", "GIF"}, {"BM", "", "BMP"}, {"II*\x00", "", "TIFF"},
		{"MM\x00*", "", "TIFF"},
		{"\x00\x00\x00", "ftypavif", "AVIF"}, {"\x00\x00\x00", "ftyphei", "HEIF"},
	} {
		if rest, ok := bytes.CutPrefix(contents, []byte(f.start)); ok &&
			bytes.Contains(rest[:min(len(rest), 16)], []byte(f.then)) {
			return fmt.Errorf("a %s image, want JPEG or PNG: convert it, for example with magick IN OUT.png", f.name)
		}
	}
	return fmt.Errorf("neither JPEG nor PNG: begins with % x", contents[:min(len(contents), 8)])
}

func (d *Decoder) checkSize(width, height int) error {
	if width < 1 || height < 1 || width > d.o.MaxPixels/height {
		return fmt.Errorf("image of %d x %d pixels, want at most %d in all (data.max_pixels)", width, height,
			d.o.MaxPixels)
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

func (d *Decoder) decodePNG(contents []byte, img *data.Image) error {
	c, err := png.DecodeConfig(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	if err := d.checkSize(c.Width, c.Height); err != nil {
		return err
	}
	decoded, err := png.Decode(bytes.NewReader(contents))
	if err != nil {
		return err
	}
	d.pix = grow(d.pix, 3*c.Width*c.Height)
	flatten(d.pix, decoded)
	*img = data.Image{Pix: d.pix, Width: c.Width, Height: c.Height, FullWidth: c.Width, FullHeight: c.Height}
	return nil
}

// flatten writes the colours of img to pix and drops transparency. It does not blend the colours with a background.
func flatten(pix []byte, img image.Image) {
	b := img.Bounds()
	at := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			var c color.NRGBA
			switch img := img.(type) {
			case *image.RGBA: // image/png uses this type for opaque images
				p := img.RGBAAt(x, y)
				c = color.NRGBA{R: p.R, G: p.G, B: p.B}
			case *image.NRGBA:
				c = img.NRGBAAt(x, y)
			case *image.Gray:
				v := img.GrayAt(x, y).Y
				c = color.NRGBA{R: v, G: v, B: v}
			case *image.NRGBA64:
				p := img.NRGBA64At(x, y)
				c = color.NRGBA{R: uint8(p.R >> 8), G: uint8(p.G >> 8), B: uint8(p.B >> 8)}
			case *image.Paletted:
				switch p := img.Palette[img.ColorIndexAt(x, y)].(type) {
				case color.RGBA: // opaque
					c = color.NRGBA{R: p.R, G: p.G, B: p.B}
				case color.NRGBA:
					c = p
				}
			default: // 16 bits, opaque
				c = color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			}
			pix[at], pix[at+1], pix[at+2] = c.R, c.G, c.B
			at += 3
		}
	}
}
