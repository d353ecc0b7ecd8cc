package jpeg

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPixelsAreThoseOfPillow decodes the images of scripts/jpeg_goldens.py with both decoders, and compares the pixels
// with Pillow's.
func TestPixelsAreThoseOfPillow(t *testing.T) {
	goldens, err := filepath.Glob("testdata/*.rgb")
	if err != nil || len(goldens) < 60 {
		t.Fatalf("%d images, %v", len(goldens), err)
	}
	for with, d := range decoders(t) {
		for _, golden := range goldens {
			name, divisor := strings.TrimSuffix(golden, ".rgb"), 1
			if i := strings.IndexByte("..248", name[len(name)-1]); i > 0 {
				divisor, name = 1<<(i-1), name[:len(name)-2]
			}
			encoded, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			pix, width, height, err := decode(d, encoded, divisor)
			if f := frameOf(encoded); f.foreign() && errors.As(err, new(unsupported)) && !must(d, f) {
				continue
			}
			if err != nil || width*height*3 != len(want) || len(pix) != len(want) {
				t.Errorf("%s, %s: %d x %d pixels, %v", with, golden, width, height, err)
				continue
			}
			for i := range pix {
				if pix[i] != want[i] {
					t.Errorf("%s, %s: value %d is %d, want %d", with, golden, i, pix[i], want[i])
					break
				}
			}
		}
	}
}

// must reports whether a decoder must decode images of a foreign kind. Debian's libturbojpeg 2 decodes arithmetic
// coding; lossless coding needs libturbojpeg 3.
func must(d *Decoder, f frame) bool { return d.native != nil && f.kind != lossless }

// TestBothDecodersGiveTheSamePixels compares the decoders at all sizes. The images have all samplings.
func TestBothDecodersGiveTheSamePixels(t *testing.T) {
	native, other := nativeDecoder(t), &Decoder{}
	all := map[string][]byte{}
	names, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(names) == 0 {
		t.Fatal("no images", err)
	}
	for _, name := range names {
		if all[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, factors := range [][][2]int{
		{{2, 2}, {1, 1}, {1, 2}}, {{2, 2}, {1, 1}, {2, 2}}, {{2, 1}, {2, 1}, {1, 1}}, {{1, 2}, {1, 1}, {1, 1}},
		{{4, 1}, {1, 1}, {1, 1}}, {{4, 2}, {1, 1}, {1, 1}}, {{1, 4}, {1, 1}, {1, 1}}, {{2, 4}, {1, 1}, {1, 1}},
		{{1, 1}, {2, 2}, {2, 1}}, {{3, 1}, {1, 1}, {1, 1}}, {{4, 1}, {2, 1}, {2, 1}}, {{2, 2}}, {{4, 3}},
		{{2, 2}, {1, 1}, {1, 1}, {2, 2}}, {{2, 1}, {1, 1}, {1, 1}, {1, 1}},
	} {
		for _, size := range [][2]int{{47, 33}, {9, 70}, {3, 3}, {64, 64}, {5, 17}} {
			o := odd{width: size[0], height: size[1], factors: factors}
			all[o.String()] = o.encode()
		}
	}
	for name, contents := range all {
		if f := frameOf(contents); f.foreign() {
			continue
		}
		for _, n := range []int{1, 2, 4, 8} {
			want, w, h, err := decode(native, contents, n)
			if err != nil {
				t.Errorf("%s / %d: libturbojpeg: %v", name, n, err)
				continue
			}
			got, gotW, gotH, err := decode(other, contents, n)
			if err != nil || gotW != w || gotH != h || !bytes.Equal(got, want) {
				t.Errorf("%s / %d: %d x %d, want %d x %d, other pixels, or %v", name, n, gotW, gotH, w, h, err)
			}
		}
	}
}
