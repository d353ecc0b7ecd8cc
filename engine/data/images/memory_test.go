package images

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// DecoderBytes must not include the memory of closed decoders.
func TestDecodersCountTheirMemory(t *testing.T) {
	before, _ := DecoderBytes()
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contents := filteredPNG(rand.New(rand.NewPCG(5, 6)), 300, 200, pngRGB, 2)
	var img data.Image
	if err := d.Decode(contents, nil, &img); err != nil {
		t.Fatal(err)
	}
	now, most := DecoderBytes()
	pixels := int64(3 * 300 * 200)
	if got := now - before; got < pixels || got > 2*(pixels+int64(len(contents))) || most < now {
		t.Errorf("got %d bytes, at most %d", got, most)
	}
	d.Close()
	if after, _ := DecoderBytes(); after != before {
		t.Errorf("got %d bytes more than before", after-before)
	}
}

// The header states more pixels than the file contains. The buffers for these pixels must not remain for the rest of
// the run.
func TestHeadersOfLargeImagesPinNoMemory(t *testing.T) {
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := rand.New(rand.NewPCG(1, 1))
	for _, colour := range []byte{pngGrey, pngRGB, pngRGBA} {
		contents := filteredPNG(r, 8, 8, colour, 1)
		binary.BigEndian.PutUint32(contents[16:], 3000)
		binary.BigEndian.PutUint32(contents[20:], 3000)
		binary.BigEndian.PutUint32(contents[29:], crc32.ChecksumIEEE(contents[12:29]))
		var img data.Image
		if d.decodePlainPNG(contents, &img) || d.held() > 1<<20 {
			t.Errorf("colour type %d: accepted, or %d bytes before the stream is proven", colour, d.held())
		}
		if err := d.Decode(contents, nil, &img); err == nil || d.held() > keptBytes {
			t.Errorf("colour type %d: got %v, and keeps %d bytes", colour, err, d.held())
		}
	}
}

// If a WebP header states more pixels than data.max_pixels, the image must be refused before memory for them is
// allocated.
func TestSizesOfWebPImagesAreLimited(t *testing.T) {
	for name, header := range map[string]struct {
		at   int // position in the encoded image
		size []byte
	}{"lossy.webp": {6, []byte{0xFF, 0x3F, 0xFF, 0x3F}}, "lossless.webp": {1, []byte{0xFF, 0xFF, 0xFF, 0x0F}}} {
		contents, err := os.ReadFile("testdata/formats/" + name)
		if err != nil {
			t.Fatal(err)
		}
		copy(contents[20+header.at:], header.size) // after the headers of the file and of its chunk
		d, err := NewDecoder(DecodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var img data.Image
		if err := d.Decode(contents, nil, &img); err == nil || !strings.Contains(err.Error(), "of 1638") ||
			!strings.Contains(err.Error(), "data.max_pixels") || d.held() > 0 {
			t.Errorf("%s: got %v, and %d bytes", name, err, d.held())
		}
	}
}

// After a large image, a Decoder must free its buffers of rows. It keeps only the pixels that it returns.
func TestRowsOfALargeImageAreFreed(t *testing.T) {
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	flat := image.NewNRGBA(image.Rect(0, 0, 3000, 2000))
	flat.Pix[3] = 1 // a pixel that is not opaque, so the file has four channels
	var contents bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&contents, flat); err != nil {
		t.Fatal(err)
	}
	var img data.Image
	if err := d.Decode(contents.Bytes(), nil, &img); err != nil || cap(d.rows)+cap(d.packed) > keptBytes {
		t.Errorf("got %v, and keeps %d bytes of rows", err, cap(d.rows)+cap(d.packed))
	}
}
