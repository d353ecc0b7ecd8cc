package jpeg

import (
	"errors"
	"fmt"
)

// Limits for progressive images. Each scan of such an image is a pass over all pixels. Encoders use about ten scans.
// Without limits, decoding a file of 100 KB could take minutes.
const (
	maxScans      = 500
	maxSide       = 65500   // pixels, a limit of libjpeg
	maxScanPixels = 1 << 30 // limit of scans times pixels: 16 scans of the 64 megapixels that a data set permits
)

// Header contains the properties of an image that are known before decoding.
type Header struct {
	Width, Height int // pixels
	frame         frame
}

// Decoder decodes one image at a time and reuses its buffers.
type Decoder struct {
	native  *native // nil: Go decodes all images
	picture picture
}

// NewDecoder returns a Decoder that uses libturbojpeg if it is available, and Go otherwise.
func NewDecoder() (*Decoder, error) {
	lib, _ := openLibrary()
	if lib == nil {
		return &Decoder{}, nil
	}
	n, err := lib.newDecoder()
	if err != nil {
		return nil, fmt.Errorf("start libturbojpeg: %w", err)
	}
	return &Decoder{native: n}, nil
}

// Close frees the buffers. The Decoder must not be used afterwards.
func (d *Decoder) Close() {
	if d.native != nil {
		d.native.close()
		d.native = nil
	}
}

// Header reads the size of the encoded image in data.
func (d *Decoder) Header(data []byte) (Header, error) {
	f := frameOf(data)
	scans := f.scans
	if scans > maxScans {
		return Header{}, fmt.Errorf("jpeg: %d scans, want at most %d", scans, maxScans)
	}
	if max(f.width, f.height) > maxSide {
		return Header{}, fmt.Errorf("jpeg: %d x %d pixels, want at most %d along a side", f.width, f.height, maxSide)
	}
	h, err := d.size(data, f)
	h.frame = f
	pixels := h.Width * h.Height
	switch {
	case err != nil || scans*pixels <= maxScanPixels:
		return h, err
	case pixels > maxScanPixels:
		return Header{}, fmt.Errorf("jpeg: %d x %d pixels, want at most %d in all", h.Width, h.Height, maxScanPixels)
	}
	return Header{}, fmt.Errorf("jpeg: %d scans of %d x %d pixels, want at most %d: save the image smaller, or not as progressive JPEG",
		scans, h.Width, h.Height, maxScanPixels/pixels)
}

// size reads the size with the library that will decode the image.
func (d *Decoder) size(data []byte, f frame) (Header, error) {
	if d.native != nil {
		return d.native.header(data)
	}
	if f.width < 1 || f.height < 1 {
		return Header{}, errors.New("jpeg: no frame header with a size")
	}
	if f.kind > 0xC2 {
		return Header{}, unsupportedFrame(f.kind)
	}
	return Header{Width: f.width, Height: f.height}, checkFrame(f.bits, f.channels)
}

// Decode decodes data to RGB bytes (height, width, 3). h is the Header of data. The result is in buf if buf is large
// enough. A denominator of 2, 4 or 8 divides the width and the height, rounded up.
func (d *Decoder) Decode(data []byte, h Header, denominator int, buf []byte) (pix []byte, width, height int,
	err error) {
	if data, err = h.frame.image(data); err != nil {
		return nil, 0, 0, err
	}
	// Go decodes incomplete images, because releases of libturbojpeg smooth their blocks in different ways. It also
	// decides about images of which libturbojpeg warns: their pixels may be intact or not.
	if d.native == nil || h.frame.partial && h.frame.kind == 0xC2 {
		return d.picture.decode(data, h, denominator, buf)
	}
	width, height = (h.Width+denominator-1)/denominator, (h.Height+denominator-1)/denominator
	pix = grow(buf, 3*width*height)
	if err = d.native.decode(data, denominator, pix); err == nil {
		return pix, width, height, nil
	}
	again, width, height, other := d.picture.decode(data, h, denominator, pix)
	if errors.As(other, new(unsupported)) {
		return nil, 0, 0, err
	}
	return again, width, height, other
}

// Choice describes the library in use.
type Choice struct {
	Native bool
	Name   string // "libturbojpeg (PATH)" or "Go"
	Path   string // path of libhetero_jpeg.so; "" for Go
	Reason string // reason why libturbojpeg is not in use; "" if it is
}

// InUse returns the library that decodes images, for the log.
func InUse() Choice {
	lib, err := openLibrary()
	if lib == nil {
		return Choice{Name: "Go", Reason: err.Error()}
	}
	return Choice{Native: true, Name: fmt.Sprintf("libturbojpeg (%s)", lib.name()), Path: lib.path}
}

func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n)
	}
	return buf[:n]
}
