package webp

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"os"
	"sync"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
)

// Variable is the environment variable that turns libwebp off: its only value is "go".
const Variable = "HETERO_WEBP"

// Decoder decodes images. The zero value decodes with Go.
type Decoder struct{ lib *library }

// CheckVariable returns an error if HETERO_WEBP has an unknown value.
func CheckVariable() error {
	if value := os.Getenv(Variable); value != "" && value != "go" {
		return fmt.Errorf("environment variable %s: got %q, want go, or no value", Variable, value)
	}
	return nil
}

// NewDecoder returns a Decoder that uses libwebp if it is available, and Go otherwise. It returns the error of
// CheckVariable.
func NewDecoder() (*Decoder, error) {
	if err := CheckVariable(); err != nil {
		return nil, err
	}
	lib, _ := chosen()
	return &Decoder{lib}, nil
}

// Choice describes the decoder in use.
type Choice struct {
	Native bool
	Name   string // "libwebp 1.2.4" or "Go"
	Path   string // path of libwebp; "" for Go
	Reason string // reason why libwebp is not in use; "" if it is
}

// InUse returns the decoder that decodes images, for the log.
func InUse() Choice {
	lib, err := chosen()
	if lib == nil {
		return Choice{Name: "Go", Reason: err.Error()}
	}
	return Choice{Native: true, Name: "libwebp " + versionText(lib.version), Path: lib.path}
}

// chosen returns libwebp, or nil and the reason why Go decodes. Only the first call reads the variable.
var chosen = sync.OnceValues(func() (*library, error) {
	if err := CheckVariable(); err != nil {
		return nil, err
	}
	if os.Getenv(Variable) == "go" {
		return nil, fmt.Errorf("%s=go turns libwebp off", Variable)
	}
	lib, err := openLibrary()
	if err != nil {
		return nil, err
	}
	if lib.version < leastVersion {
		return nil, fmt.Errorf("%s is version %s, want %s or later", lib.path, versionText(lib.version),
			versionText(leastVersion))
	}
	return lib, nil
})

// leastVersion is the first version of libwebp whose library file has the name that this package opens.
const leastVersion = 1 << 16 // 1.0.0

// versionText formats a version of libwebp, which has 8 bits for each part.
func versionText(v int) string { return fmt.Sprintf("%d.%d.%d", v>>16, v>>8&0xff, v&0xff) }

// suitsLibrary reports whether libwebp may decode the image. It returns false for images that libwebp may read in
// another way than Go. It also returns false for images that would need much more memory than their pixels.
func (f *File) suitsLibrary() bool {
	if f.lossless {
		h, err := f.codes()
		return err == nil && h.groups <= mostGroups
	}
	return !onlyGo(f.pixels)
}

// onlyGo reports whether Go must decode a lossy image, because libwebp may read the image in another way. Either the
// image has more than 16 MiB, which Go may refuse, or a partition begins with the byte 0xFF. No encoder writes such a
// partition, because its first value is outside the range of the arithmetic code. The result then depends on the width
// of a decoder's registers.
func onlyGo(encoded []byte) bool {
	const header, long = 10, 1 << 24 // bytes
	beyond := func(partition []byte) bool { return len(partition) > 0 && partition[0] == 0xFF }
	if len(encoded) < header || len(encoded) >= long || beyond(encoded[header:]) {
		return true
	}
	rest := encoded[min(header+uint24(encoded)>>5, len(encoded)):]
	// Try each number of partitions, because the arithmetic code contains the actual number. Both decoders refuse an
	// image whose sizes of partitions do not fit the number.
	for n := 1; n <= 8 && len(rest) >= 3*(n-1); n *= 2 {
		sizes, partitions, found := rest, rest[3*(n-1):], false
		for range n - 1 {
			size := uint24(sizes)
			if size > len(partitions) {
				found, partitions = false, nil
				break
			}
			found = found || beyond(partitions[:size])
			sizes, partitions = sizes[3:], partitions[size:]
		}
		if found || beyond(partitions) {
			return true
		}
	}
	return false
}

// Decode writes the image to pix (height, width, 3), where width x height is the Canvas. An image that is smaller than
// its canvas is surrounded by black.
func (d *Decoder) Decode(f *File, pix []byte) error {
	width, height, err := f.size()
	if err != nil {
		return err
	}
	whole, high := width, height // of the canvas
	if f.width > 0 {
		whole, high = f.width, f.height
	}
	switch {
	case width < 1 || height < 1:
		return fmt.Errorf("webp: image of %d x %d pixels, want at least 1 x 1", width, height)
	case f.x+width > whole || f.y+height > high:
		return fmt.Errorf("webp: image of %d x %d pixels at (%d, %d), want at most the canvas of %d x %d", width,
			height, f.x, f.y, whole, high)
	case len(pix) != 3*whole*high:
		return fmt.Errorf("webp: buffer of %d bytes, want %d", len(pix), 3*whole*high)
	}
	if width != whole || height != high {
		clear(pix)
	}
	dst := rows{pix[3*(f.y*whole+f.x):], 3 * whole}
	if d.lib != nil && f.suitsLibrary() && d.lib.decode(f.pixels, dst.pix, dst.stride) {
		return nil
	}
	if f.lossless {
		return decodeLossless(f.pixels, dst, width, height)
	}
	return decodeLossy(f.pixels, dst, width, height)
}

func decodeLossless(encoded []byte, dst rows, width, height int) error {
	decoded, err := vp8l.Decode(bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	picture, ok := decoded.(*image.NRGBA)
	if !ok {
		return fmt.Errorf("webp: the image has the type %T", decoded)
	}
	for y := range height {
		dropAlpha(dst.row(y)[:3*width], picture.Pix[y*picture.Stride:][:4*width])
	}
	return nil
}

// decodeLossy uses a new vp8.Decoder for each image. If an image has no filter strengths, a reused Decoder would use
// those of an earlier image.
func decodeLossy(encoded []byte, dst rows, width, height int) error {
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(encoded), len(encoded))
	h, err := d.DecodeFrameHeader()
	if err != nil {
		return err
	}
	if !h.ShowFrame || h.VersionNumber > 3 {
		return errors.New("webp: the first image is not visible, or has an unknown version")
	}
	decoded, err := d.DecodeFrame()
	if err != nil {
		return err
	}
	fromVideo(dst, decoded, width, height)
	return nil
}
