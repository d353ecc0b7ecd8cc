package images

import (
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/webp"
)

// decodeWebP decodes the first image of a WebP file. The pixels are those of Pillow.
func (d *Decoder) decodeWebP(contents []byte, img *data.Image) error {
	f, err := webp.Parse(contents)
	if err != nil {
		return err
	}
	width, height, err := f.Canvas()
	if err != nil {
		return err
	}
	if err := d.checkSize(width, height); err != nil {
		return err
	}
	d.useLibrary(f.WorkBytes(width, height))
	d.pix = grow(d.pix, 3*width*height)
	if err := d.webp.Decode(&f, d.pix); err != nil {
		return err
	}
	*img = data.Image{Pix: d.pix, Width: width, Height: height, FullWidth: width, FullHeight: height}
	return nil
}
