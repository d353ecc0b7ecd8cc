package jpeg

import (
	"errors"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPixelsAreThoseOfPillow decodes the images of scripts/jpeg_goldens.py with both decoders. libturbojpeg gives the
// same pixels. Without it, only the inverse cosine transform of image/jpeg rounds differently, by one level of a
// channel as stored: by up to 3 levels of red, green and blue.
func TestPixelsAreThoseOfPillow(t *testing.T) {
	names, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(names) == 0 {
		t.Fatal("no images", err)
	}
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	off, values := 0, 0
	for _, name := range names {
		encoded, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name + ".rgb")
		if err != nil {
			t.Fatal(err)
		}
		h, err := d.Header(encoded)
		if err != nil && !strings.Contains(name, "cmyk420") { // image/jpeg does not read these factors
			t.Fatal(err)
		}
		check := func(with string, decode func() ([]byte, int, int, error), most int) (sum int) {
			pix, width, height, err := decode()
			if err != nil || width*height*3 != len(want) || len(pix) != len(want) {
				t.Fatalf("%s, %s: %d x %d pixels, %v", with, name, width, height, err)
			}
			for i := range pix {
				difference := max(pix[i], want[i]) - min(pix[i], want[i])
				if sum += int(difference); int(difference) > most {
					t.Fatalf("%s, %s: value %d is %d, want %d", with, name, i, pix[i], want[i])
				}
			}
			return sum
		}
		most := 3
		if strings.Contains(name, "grey") {
			most = 1
		}
		if strings.Contains(name, "cmyk420") {
			if _, _, _, err := goDecode(encoded, h, nil); !errors.As(err, new(jpeg.UnsupportedError)) {
				t.Errorf("%s: got %v, want an unsupported subsampling", name, err)
			}
		} else {
			off, values = off+check("image/jpeg", func() ([]byte, int, int, error) {
				return goDecode(h.frame.withInks(encoded), h, nil)
			}, most), values+len(want)
		}
		if d.native != nil {
			check("libturbojpeg", func() ([]byte, int, int, error) { return d.Decode(encoded, h, 1, nil) }, 0)
		}
	}
	if mean := float64(off) / float64(values); mean > 0.1 {
		t.Errorf("image/jpeg: the pixels differ by %.3f in the mean, want at most 0.1", mean)
	}
}
