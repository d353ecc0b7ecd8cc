package images

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/data/webp"
)

// Description contains the properties in the header of an image.
type Description struct {
	Format        string // jpeg, png, webp, bmp, tiff, gif, pnm
	Width, Height int    // pixels, as stored
	Colour        string // rgb, grey, cmyk, palette
	Bits          int    // per channel
	Orientation   Orientation
}

// Describe reads the header of an image.
func Describe(contents []byte) (Description, error) {
	f := formatOf(contents)
	var c image.Config
	var err error
	switch f {
	case jpegFormat:
		return describeJPEG(contents)
	case pngFormat:
		if c, err = png.DecodeConfig(bytes.NewReader(contents)); err != nil {
			c, err = png.DecodeConfig(bytes.NewReader(pixelsOnly(contents)))
		}
	case webpFormat:
		c, err = describeWebP(contents)
	case pnmFormat:
		return describePNM(contents)
	case tiffFormat:
		c, err = tiff.DecodeConfig(bytes.NewReader(contents))
	case bmpFormat:
		c, err = bmp.DecodeConfig(bytes.NewReader(contents))
	case gifFormat:
		if c, err = gif.DecodeConfig(bytes.NewReader(contents)); c.ColorModel == nil {
			c.ColorModel = color.Palette{} // each image has its own palette
		}
	default:
		err = otherFormat(contents)
	}
	if err != nil {
		return Description{}, variant(f, err)
	}
	d := Description{Format: string(f), Width: c.Width, Height: c.Height, Colour: "rgb", Bits: 8,
		Orientation: OrientationOf(contents)}
	switch c.ColorModel {
	case color.GrayModel:
		d.Colour = "grey"
	case color.Gray16Model:
		d.Colour, d.Bits = "grey", 16
	case color.CMYKModel:
		d.Colour = "cmyk"
	case color.RGBA64Model, color.NRGBA64Model:
		d.Bits = 16
	}
	if _, palette := c.ColorModel.(color.Palette); palette {
		d.Colour = "palette"
	}
	return d, nil
}

func describeJPEG(contents []byte) (Description, error) {
	width, height, channels, bits, err := jpeg.Shape(contents)
	if err != nil {
		return Description{}, err
	}
	colour := map[int]string{1: "grey", 3: "rgb", 4: "cmyk"}[channels]
	if colour == "" {
		return Description{}, fmt.Errorf("jpeg: %d channels, want 1, 3 or 4", channels)
	}
	return Description{Format: "jpeg", Width: width, Height: height, Colour: colour, Bits: bits,
		Orientation: OrientationOf(contents)}, nil
}

func describeWebP(contents []byte) (image.Config, error) {
	f, err := webp.Parse(contents)
	if err != nil {
		return image.Config{}, err
	}
	width, height, err := f.Canvas()
	return image.Config{ColorModel: color.RGBAModel, Width: width, Height: height}, err
}

func describePNM(contents []byte) (Description, error) {
	h, err := readNetpbm(contents)
	d := Description{Format: string(pnmFormat), Width: h.width, Height: h.height, Colour: "rgb", Bits: 8,
		Orientation: Upright}
	if h.channels == 1 {
		d.Colour = "grey"
	}
	switch {
	case h.bits:
		d.Bits = 1
	case h.most > 255:
		d.Bits = 16
	}
	return d, err
}
