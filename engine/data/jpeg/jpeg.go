package jpeg

import (
	"errors"
	"fmt"
	"image/jpeg"
)

// Limits for progressive images. Each scan of such an image is a pass over all pixels. Encoders use about ten scans.
// Without limits, decoding a file of 100 KB could take minutes.
const (
	maxScans      = 500
	maxScanPixels = 1 << 30 // limit of scans times pixels: 16 scans of the 64 megapixels that a data set permits
)

// Header contains the properties of an image that are known before decoding.
type Header struct {
	Width, Height int // pixels
	viaGo         bool
	frame         frame
}

// Decoder decodes one image at a time and reuses its buffers.
type Decoder struct {
	native *native // nil: image/jpeg decodes all images
}

// NewDecoder returns a Decoder that uses libturbojpeg if it is available, and image/jpeg otherwise.
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
		if h, err := d.native.header(data); err == nil {
			return h, nil
		}
		// image/jpeg may support an image that libturbojpeg does not support, so return the error of image/jpeg.
	}
	h, err := goHeader(data)
	if unsupported := jpeg.UnsupportedError(""); d.native == nil && errors.As(err, &unsupported) {
		err = fmt.Errorf("%w; libturbojpeg may read it: install it, and build the program again", err)
	}
	return h, err
}

// Decode decodes data to RGB bytes (height, width, 3). h is the Header of data. The result is in buf if buf is large
// enough. A denominator of 2, 4 or 8 divides the width and the height, rounded up, if the library supports it.
// Otherwise the result has full size.
func (d *Decoder) Decode(data []byte, h Header, denominator int, buf []byte) (pix []byte, width, height int,
	err error) {
	if data, err = h.frame.image(data); err != nil {
		return nil, 0, 0, err
	}
	if d.native == nil || h.viaGo {
		return goDecode(h.frame.withInks(data), h, buf)
	}
	width, height = (h.Width+denominator-1)/denominator, (h.Height+denominator-1)/denominator
	pix = grow(buf, 3*width*height)
	if err := d.native.decode(data, denominator, pix); err != nil {
		return nil, 0, 0, err
	}
	return pix, width, height, nil
}

// Choice describes the library in use.
type Choice struct {
	Native bool
	Name   string // "libturbojpeg (PATH)" or "image/jpeg"
	Path   string // path of libhetero_jpeg.so; "" for image/jpeg
	Reason string // reason why libturbojpeg is not in use; "" if it is
}

// Library returns the name of the library without its path. All versions of libturbojpeg give the same pixels.
func (c Choice) Library() string {
	if c.Native {
		return "libturbojpeg"
	}
	return c.Name
}

// InUse returns the library that decodes images, for the log.
func InUse() Choice {
	lib, err := openLibrary()
	if lib == nil {
		return Choice{Name: "image/jpeg", Reason: err.Error()}
	}
	return Choice{Native: true, Name: fmt.Sprintf("libturbojpeg (%s)", lib.name()), Path: lib.path}
}

func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n)
	}
	return buf[:n]
}
