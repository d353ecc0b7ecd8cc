package jpeg

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
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

// WorkBytes returns the memory that a Decoder needs for this image in addition to the pixels: the coefficients of an
// image with several scans, 2 bytes each. An image with a single scan needs only a few rows.
func (h Header) WorkBytes() int64 {
	if h.frame.whole {
		return 0
	}
	return 2 * int64(h.frame.channels) * int64(h.Width) * int64(h.Height)
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
	pixels := f.width * f.height
	switch {
	case f.scans > maxScans:
		return Header{}, fmt.Errorf("jpeg: %d scans, want at most %d", f.scans, maxScans)
	case max(f.width, f.height) > maxSide:
		return Header{}, fmt.Errorf("jpeg: %d x %d pixels, want at most %d along a side", f.width, f.height, maxSide)
	case pixels < 1:
		return Header{}, errors.New("jpeg: no frame header with a size")
	case pixels > maxScanPixels:
		return Header{}, fmt.Errorf("jpeg: %d x %d pixels, want at most %d in all", f.width, f.height, maxScanPixels)
	case f.scans*pixels > maxScanPixels:
		return Header{}, fmt.Errorf("jpeg: %d scans of %d x %d pixels, want at most %d: save the image smaller, or not as progressive JPEG",
			f.scans, f.width, f.height, maxScanPixels/pixels)
	}
	if err := checkFrame(f.bits, f.channels); err != nil {
		return Header{}, err
	}
	if f.kind > 0xC2 && (d.native == nil || !f.foreign()) {
		return Header{}, unsupportedFrame(f)
	}
	return Header{f.width, f.height, f}, nil
}

// refusal returns an unsupported error if this release of libturbojpeg does not decode images of this kind. Otherwise
// it returns err, the error of libturbojpeg.
func refusal(f frame, err error) error {
	if err == nil || !f.foreign() {
		return err
	}
	for _, part := range []string{"Unsupported JPEG process", "arithmetic coding is not implemented",
		"omitted at compile time"} {
		if strings.Contains(err.Error(), part) {
			return fmt.Errorf("%w (%w)", unsupportedFrame(f), err)
		}
	}
	return err
}

// Decode decodes data to RGB bytes (height, width, 3). h is the Header of data. The result is in buf if buf is large
// enough. A denominator of 2, 4 or 8 divides the width and the height, rounded up. It has no effect on an image with
// lossless coding, which libturbojpeg decodes only at full size.
func (d *Decoder) Decode(data []byte, h Header, denominator int, buf []byte) (pix []byte, width, height int,
	err error) {
	if data, err = h.frame.image(data); err != nil {
		return nil, 0, 0, err
	}
	// If libturbojpeg returns a warning, Go decides whether the image is damaged. For a tiny image, libturbojpeg would
	// choose a larger scale that gives the same number of pixels, such as 3/8 instead of 1/4.
	tiny := denominator > 1 && max(h.Width, h.Height) < 8
	if d.native == nil || h.frame.unequal() || tiny && h.frame.kind <= 0xC2 {
		return d.picture.decode(data, h, denominator, buf)
	}
	if h.frame.lacks { // libturbojpeg would use the tables of the previous image
		d.native.close()
	}
	if h.frame.kind == lossless {
		denominator = 1
	}
	width, height = (h.Width+denominator-1)/denominator, (h.Height+denominator-1)/denominator
	pix = grow(buf, 3*width*height)
	if err = d.native.decode(data, denominator, pix); err == nil {
		return pix, width, height, nil
	}
	if h.frame.foreign() || errors.Is(err, syscall.ENOMEM) {
		return nil, 0, 0, refusal(h.frame, err)
	}
	return d.picture.decode(data, h, denominator, pix)
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
