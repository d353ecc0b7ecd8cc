package jpeg

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
)

// goHeader reads the size with image/jpeg.
func goHeader(data []byte) (Header, error) {
	c, err := jpeg.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return Header{}, fmt.Errorf("jpeg: %w", err)
	}
	if c.Width < 1 || c.Height < 1 {
		return Header{}, fmt.Errorf("jpeg: image of %d x %d pixels", c.Width, c.Height)
	}
	return Header{Width: c.Width, Height: c.Height, viaGo: true}, nil
}

// goDecode decodes with image/jpeg, at full size.
func goDecode(data []byte, h Header, buf []byte) ([]byte, int, int, error) {
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("jpeg: %w", err)
	}
	b := img.Bounds()
	if b.Dx() != h.Width || b.Dy() != h.Height {
		return nil, 0, 0, fmt.Errorf("jpeg: decoded %d x %d pixels, want %d x %d as in the header", b.Dx(), b.Dy(),
			h.Width, h.Height)
	}
	pix := grow(buf, 3*h.Width*h.Height)
	if img, ok := img.(*image.YCbCr); ok {
		newUpsampler(img).rgb(pix)
		return pix, h.Width, h.Height, nil
	}
	at := 0
	put := func(r, g, b uint8) {
		pix[at], pix[at+1], pix[at+2] = r, g, b
		at += 3
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			switch img := img.(type) {
			case *image.Gray:
				v := img.GrayAt(x, y).Y
				put(v, v, v)
			case *image.CMYK:
				c := img.CMYKAt(x, y)
				put(color.CMYKToRGB(c.C, c.M, c.Y, c.K))
			default:
				r, g, b, _ := img.At(x, y).RGBA()
				put(uint8(r>>8), uint8(g>>8), uint8(b>>8))
			}
		}
	}
	return pix, h.Width, h.Height, nil
}
