package webp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// decoders returns the decoders that this machine has, by name.
func decoders(t testing.TB) map[string]*Decoder {
	t.Helper()
	all := map[string]*Decoder{"Go": {}}
	if c := InUse(); c.Native {
		d, err := NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		all["libwebp"] = d
	} else if needtest.Required(t, "webp") {
		t.Fatalf("libwebp is required, but %s", c.Reason)
	}
	return all
}

// decode returns the pixels of a file. It refuses an image of more than a megapixel.
func decode(d *Decoder, contents []byte) (pix []byte, width, height int, err error) {
	f, err := Parse(contents)
	if err != nil {
		return nil, 0, 0, err
	}
	if width, height, err = f.Canvas(); err != nil {
		return nil, 0, 0, err
	}
	if width > 0 && height > 1<<20/width {
		return nil, 0, 0, errLarge
	}
	pix = make([]byte, 3*width*height)
	return pix, width, height, d.Decode(&f, pix)
}

// images returns the images that scripts/webp_goldens.py wrote, by name.
func images(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.webp")
	if err != nil || len(names) < 30 {
		t.Fatalf("%d images, %v, want at least 30", len(names), err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if all[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestPixelsAreThoseOfPillow(t *testing.T) {
	for with, d := range decoders(t) {
		for name, contents := range images(t) {
			want, err := os.ReadFile("testdata/" + name + ".rgb")
			if err != nil {
				t.Fatal(err)
			}
			pix, width, height, err := decode(d, contents)
			if err != nil || 3*width*height != len(want) {
				t.Errorf("%s, %s: %d x %d pixels, %v", with, name, width, height, err)
				continue
			}
			for i := range pix {
				if pix[i] != want[i] {
					t.Errorf("%s, %s: value %d is %d, want %d", with, name, i, pix[i], want[i])
					break
				}
			}
		}
	}
}

// The test calls libwebp itself, because Decode would use Go for an image that libwebp refuses.
func TestLibwebpDecodesEveryKind(t *testing.T) {
	d := decoders(t)["libwebp"]
	if d == nil {
		needtest.Missing(t, "webp", InUse().Reason)
	}
	for name, contents := range images(t) {
		f, err := Parse(contents)
		if err != nil {
			t.Fatal(err)
		}
		width, height, err := f.size()
		if err != nil {
			t.Fatal(err)
		}
		if !d.lib.decode(f.pixels, make([]byte, 3*width*height), 3*width) {
			t.Errorf("%s: libwebp refuses it", name)
		}
	}
	if c := InUse(); !strings.HasPrefix(c.Name, "libwebp 1.") || !strings.Contains(c.Path, "libwebp") ||
		c.Reason != "" {
		t.Errorf("got %+v", c)
	}
}

// Both decoders must refuse a truncated image, because its pixels cannot be used.
func TestTruncatedImagesAreRefused(t *testing.T) {
	for with, d := range decoders(t) {
		for name, contents := range images(t) {
			f, err := Parse(contents)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(contents, f.pixels) // start of the image, after its header
			for _, keep := range []int{0, 1, 4, 9, len(f.pixels) / 2, len(f.pixels) - 1} {
				if keep >= len(f.pixels) || keep < 0 {
					continue
				}
				if _, _, _, err := decode(d, contents[:at+keep]); err == nil {
					t.Errorf("%s, %s: decoded with %d of %d bytes of its pixels", with, name, keep, len(f.pixels))
				}
				cut := f // a chunk of the right length with a truncated image
				if cut.pixels = f.pixels[:keep]; keep < 5 {
					if err := decodeFile(d, &cut); err == nil {
						t.Errorf("%s, %s: decoded with a chunk of %d bytes", with, name, keep)
					}
				}
			}
		}
	}
}

func decodeFile(d *Decoder, f *File) error {
	width, height, err := f.Canvas()
	if err != nil {
		return err
	}
	return d.Decode(f, make([]byte, 3*width*height))
}

// If the sizes in headers contradict each other, the image must be refused before a decoder writes pixels.
func TestSizesThatContradictAreRefused(t *testing.T) {
	all := images(t)
	for name, c := range map[string]struct {
		change func(f *File)
		want   string
	}{
		"a canvas that is too narrow": {func(f *File) { f.width, f.height = 60, 47 }, "want at most the canvas of 60 x 47"},
		"an image beyond the canvas":  {func(f *File) { f.width, f.height, f.y = 61, 47, 2 }, "at (0, 2), want at most the canvas"},
		"a buffer of another size":    {func(f *File) { f.width, f.height = 100, 100 }, "buffer of 8601 bytes, want 30000"},
	} {
		for with, d := range decoders(t) {
			for _, image := range []string{"lossy-50-6.webp", "lossless-0.webp"} {
				f, err := Parse(all[image])
				if err != nil {
					t.Fatal(err)
				}
				c.change(&f)
				size := 3 * 61 * 47
				if f.width == 60 {
					size = 3 * 60 * 47
				}
				if err := d.Decode(&f, make([]byte, size)); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %s, %s: got %v, want %q", with, image, name, err, c.want)
				}
			}
		}
	}
}

// A decoder must keep nothing of an image for the next one.
func TestImagesDoNotDependOnTheOneBefore(t *testing.T) {
	all := images(t)
	for with, d := range decoders(t) {
		for _, name := range []string{"lossy-0-6.webp", "lossy-100-0.webp", "lossy-17x33.webp", "lossless-0.webp"} {
			for before := range all {
				decode(d, all[before])
				pix, _, _, err := decode(d, all[name])
				if want, _ := os.ReadFile("testdata/" + name + ".rgb"); err != nil || !bytes.Equal(pix, want) {
					t.Fatalf("%s: %s after %s: other pixels, or %v", with, name, before, err)
				}
			}
		}
	}
}

func TestTheVariableIsChecked(t *testing.T) {
	t.Setenv(Variable, "yes")
	if _, err := NewDecoder(); err == nil || !strings.Contains(err.Error(), `HETERO_WEBP: got "yes", want go, or no value`) {
		t.Errorf("got %v", err)
	}
}

// If an image has more groups of Huffman codes than any encoder writes, libwebp must not allocate memory for them. The
// image must be refused first. The error must be final, so that data.corrupt = "skip" applies.
func TestManyHuffmanGroupsAreRefused(t *testing.T) {
	encoded := manyGroups()
	if h, err := readHuffman(encoded, 600, 600); err != nil || h.groups != 11<<8+1 || h.bytes() < 30<<20 {
		t.Fatalf("got %+v, %v, want %d groups", h, err, 11<<8+1)
	}
	for with, d := range decoders(t) {
		f := File{pixels: encoded, lossless: true}
		err := d.Decode(&f, make([]byte, 3*600*600))
		if err == nil || !strings.Contains(err.Error(), "too many Huffman trees") || f.suitsLibrary() {
			t.Errorf("%s: got %v", with, err)
		}
		if e := interface{ Unavailable() bool }(nil); errors.As(err, &e) {
			t.Errorf("%s: %v is not final", with, err)
		}
	}
}

// The package must read the Huffman codes of every lossless image. It does not pass an image to libwebp if it cannot
// read them.
func TestTheHuffmanCodesOfImagesAreRead(t *testing.T) {
	most := 0
	for name, contents := range images(t) {
		f, err := Parse(contents)
		if err != nil {
			t.Fatal(err)
		}
		if !f.lossless {
			continue
		}
		h, err := f.codes()
		if err != nil || h.groups < 1 || h.groups > mostGroups || !f.suitsLibrary() {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		most = max(most, h.groups)
	}
	if most < 2 {
		t.Error("no image has several groups")
	}
}

// manyGroups returns the start of a lossless image of 600 x 600 pixels. The image has 11 x 256 + 1 groups of Huffman
// codes.
func manyGroups() []byte {
	var out []byte
	bits := 0
	write := func(value, count int) {
		for k := range count {
			if bits%8 == 0 {
				out = append(out, 0)
			}
			out[bits/8] |= byte(value>>k&1) << (bits % 8)
			bits++
		}
	}
	write(0x2F, 8)
	write(599, 14)
	write(599, 14)
	write(0, 1+3)                                  // opacity, version
	write(0, 1+1)                                  // no transform, no cache of colours
	write(1, 1)                                    // an image of groups follows
	write(0, 3+1)                                  // blocks of 4 x 4 pixels; no cache of colours
	for _, symbol := range []int{0, 11, 0, 0, 0} { // green, red, blue, opacity, distance: one code each, without bits
		write(0b101, 3)
		write(symbol, 8)
	}
	return out
}
