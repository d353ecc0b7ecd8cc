package images

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/hetero-train/hetero-train/engine/data"
)

// filteredPNG returns a PNG image of random pixels. Each row has a random filter.
func filteredPNG(r *rand.Rand, width, height int, colour byte, parts int) []byte {
	pixel := map[byte]int{pngGrey: 1, pngRGB: 3, pngPalette: 1, pngGreyAlpha: 2, pngRGBA: 4}[colour]
	var raw bytes.Buffer
	for range height {
		raw.WriteByte(byte(r.IntN(5)))
		for range width * pixel {
			raw.WriteByte(byte(r.IntN(7) * r.IntN(37)))
		}
	}
	out := []byte(pngStart)
	chunk := func(kind string, contents []byte) {
		whole := append(binary.BigEndian.AppendUint32(nil, uint32(len(contents))), kind...)
		whole = append(whole, contents...)
		out = append(out, binary.BigEndian.AppendUint32(whole, crc32.ChecksumIEEE(whole[4:]))...)
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	chunk("IHDR", append(header, 8, colour, 0, 0, 0))
	if colour == pngPalette {
		palette := make([]byte, 3*(1+r.IntN(256)))
		for i := range palette {
			palette[i] = byte(r.Uint32())
		}
		chunk("PLTE", palette)
	}
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write(raw.Bytes())
	z.Close()
	for k := range parts {
		chunk("IDAT", packed.Bytes()[k*packed.Len()/parts:(k+1)*packed.Len()/parts])
	}
	chunk("IEND", nil)
	return out
}

// slowly decodes an image with the Go package of its format, without the quick decoders.
func slowly(d *Decoder, contents []byte, img *data.Image) error {
	switch formatOf(contents) {
	case pngFormat:
		if err := d.decodeWith(png.Decode, png.DecodeConfig, contents, img); err == nil {
			return nil
		}
		return d.decodeWith(png.Decode, png.DecodeConfig, pixelsOnly(contents), img)
	case bmpFormat:
		return d.decodeWith(bmp.Decode, bmp.DecodeConfig, contents, img)
	}
	return d.decodeWith(tiff.Decode, tiff.DecodeConfig, contents, img)
}

// quickly decodes an image with the quick decoders. It returns false for images that they leave to the Go packages.
func quickly(d *Decoder, contents []byte, img *data.Image) bool {
	switch formatOf(contents) {
	case pngFormat:
		return d.decodePlainPNG(contents, img)
	case bmpFormat:
		return d.decodePlainBMP(contents, img)
	case tiffFormat:
		return d.decodePlainTIFF(contents, img)
	}
	return false
}

// compare fails if the quick decoders accept an image that the Go packages refuse, or if their pixels differ. It
// reports whether the quick decoders accept the image.
func compare(t *testing.T, d, other *Decoder, name string, contents []byte) bool {
	var quick, slow data.Image
	if !quickly(d, contents, &quick) {
		return false
	}
	if err := slowly(other, contents, &slow); err != nil {
		t.Errorf("%s: accepted, but the package says: %v", name, err)
		return true
	}
	if quick.Width != slow.Width || quick.Height != slow.Height || !bytes.Equal(quick.Pix, slow.Pix) {
		t.Errorf("%s: %d x %d pixels differ from the %d x %d of the package", name, quick.Width, quick.Height,
			slow.Width, slow.Height)
	}
	return true
}

func twoDecoders(t *testing.T) (a, b *Decoder) {
	for _, d := range []**Decoder{&a, &b} {
		var err error
		if *d, err = NewDecoder(DecodeOptions{MaxPixels: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*d).Close)
	}
	return a, b
}

func TestQuickPNGsHaveThePixelsOfThePackage(t *testing.T) {
	d, other := twoDecoders(t)
	r := rand.New(rand.NewPCG(1, 2))
	for k := range 400 {
		colour := []byte{pngGrey, pngRGB, pngPalette, pngGreyAlpha, pngRGBA}[k%5]
		contents := filteredPNG(r, 1+r.IntN(40), 1+r.IntN(20), colour, 1+r.IntN(4))
		if !compare(t, d, other, "random", contents) {
			t.Fatalf("image %d of colour type %d is not decoded quickly", k, colour)
		}
		for range 5 { // damaged images
			bad := bytes.Clone(contents)
			at := r.IntN(len(bad))
			bad[at] ^= 1 << r.IntN(8)
			compare(t, d, other, "damaged", bad)
			compare(t, d, other, "cut", bad[:at])
		}
	}
}

// The quick decoders must decode the images of testdata that are of a usual kind. Their pixels must equal those of the
// Go packages, also for damaged images.
func TestQuickDecodersAgreeWithThePackages(t *testing.T) {
	files, err := filepath.Glob("testdata/formats/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	d, other := twoDecoders(t)
	quick := map[format]int{}
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range files {
		contents, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := formatOf(contents)
		if strings.HasSuffix(name, ".rgb") || f != pngFormat && f != bmpFormat && f != tiffFormat {
			continue
		}
		if compare(t, d, other, name, contents) {
			quick[f]++
		}
		for range 200 {
			bad := bytes.Clone(contents)
			at := r.IntN(len(bad))
			bad[at] = byte(r.Uint32())
			compare(t, d, other, name+" damaged", bad)
			compare(t, d, other, name+" cut", bad[:at])
		}
	}
	if quick[pngFormat] < 5 || quick[bmpFormat] < 2 || quick[tiffFormat] < 4 {
		t.Errorf("decoded quickly: %v", quick)
	}
}
