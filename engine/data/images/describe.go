package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
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
	c, format, err := image.DecodeConfig(bytes.NewReader(contents))
	if errors.Is(err, image.ErrFormat) {
		return Description{}, fmt.Errorf("neither JPEG nor PNG: begins with % x", contents[:min(len(contents), 8)])
	}
	if err != nil {
		return Description{}, err
	}
	d := Description{Format: format, Width: c.Width, Height: c.Height, Colour: "rgb", Bits: 8, Orientation: OrientationOf(contents)}
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
