package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"

	"github.com/hetero-train/hetero-train/engine/data/jpeg"
)

// Description contains the properties in the header of an image.
type Description struct {
	Format        string // jpeg, png
	Width, Height int    // pixels, as stored
	Colour        string // rgb, grey, cmyk, palette
	Bits          int    // per channel
	Orientation   Orientation
}

// Describe reads the header of a JPEG or PNG image.
func Describe(contents []byte) (Description, error) {
	if bytes.HasPrefix(contents, []byte("\xFF\xD8")) {
		return describeJPEG(contents)
	}
	c, format, err := image.DecodeConfig(bytes.NewReader(contents))
	if err != nil && bytes.HasPrefix(contents, []byte(pngStart)) {
		c, format, err = image.DecodeConfig(bytes.NewReader(pixelsOnly(contents)))
	}
	if errors.Is(err, image.ErrFormat) {
		return Description{}, otherFormat(contents)
	}
	if err != nil {
		return Description{}, err
	}
	d := Description{Format: format, Width: c.Width, Height: c.Height, Colour: "rgb", Bits: 8,
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
