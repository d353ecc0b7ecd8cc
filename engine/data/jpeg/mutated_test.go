package jpeg

import (
	"bytes"
	"errors"
	"go/build"
	"image"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// seeds returns images of many kinds. If the test images of the Go installation are available, it includes them:
// progressive images, restart intervals, CMYK, and several subsamplings.
func seeds(t testing.TB) [][]byte {
	all := [][]byte{encode(t, gradient(61, 35)), encode(t, image.NewGray(image.Rect(0, 0, 24, 9))),
		progressive(64, 48, 12)}
	paths, _ := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "image", "testdata", "*.jpeg"))
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil && len(b) < 20_000 {
			all = append(all, b)
		}
	}
	return all
}

// mutate changes an image at up to 8 positions. It changes bits, and writes bytes that have a meaning for decoders. It
// also removes, repeats or overwrites ranges of bytes, or cuts off the end.
func mutate(random *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	telling := []byte{0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC2, 0xC4, 0xC9, 0xD0, 0xD9, 0xDA, 0xDB, 0xDD, 0xFE, 0xFF}
	for range 1 + random.IntN(8) {
		if len(b) < 4 {
			break
		}
		at := random.IntN(len(b))
		if random.IntN(2) == 0 {
			at = random.IntN(min(len(b), 700)) // within the headers
		}
		n := min(1+random.IntN(40), len(b)-at)
		switch random.IntN(7) {
		case 0, 1:
			b[at] ^= 1 << random.IntN(8)
		case 2, 3:
			b[at] = telling[random.IntN(len(telling))]
		case 4:
			b = append(b[:at], b[at+n:]...)
		case 5:
			b = append(b[:at+n], append(bytes.Clone(b[at:at+n]), b[at+n:]...)...)
		case 6:
			copy(b[at:at+n], b[random.IntN(len(b)):])
		}
	}
	if random.IntN(10) == 0 {
		b = b[:random.IntN(len(b))]
	}
	return b
}

// TestMutatedImagesAreDecodedOrRefused decodes 800 mutated images. With HETERO_HOSTILE=1 it continues for five minutes
// (row S9 of docs/reliability.md). Both decoders must refuse the same images, and give the same pixels of all others.
// With make SANITIZE=address it detects accesses outside the decoder's memory.
func TestMutatedImagesAreDecodedOrRefused(t *testing.T) {
	const seed = 9
	random := rand.New(rand.NewPCG(seed, 0))
	all := seeds(t)
	trials, until := 800, time.Now().Add(time.Hour)
	if needtest.Hostile.On() {
		trials, until = 1<<30, time.Now().Add(5*time.Minute)
	}
	known := decoders(t)
	decoded, done, foreign, unequal := 0, 0, 0, 0
	var slowest time.Duration
	for ; done < trials && time.Now().Before(until); done++ {
		contents := mutate(random, all[random.IntN(len(all))])
		denominator := 1 << random.IntN(4)
		var inGo error
		var pixels []byte
		for _, name := range slices.Sorted(maps.Keys(known)) { // "Go" is the first
			d := known[name]
			begun := time.Now()
			h, err := d.Header(contents)
			if err == nil && h.Width > (1<<22)/h.Height {
				break
			}
			var pix []byte
			var w, hh int
			if err == nil {
				pix, w, hh, err = d.Decode(contents, h, denominator, nil)
			}
			slowest = max(slowest, time.Since(begun))
			if err == nil {
				decoded++
			}
			switch {
			case name == "Go":
				inGo, pixels = err, pix
			case errors.As(inGo, new(unsupported)):
				foreign++
			case (err == nil) != (inGo == nil):
				t.Errorf("seed %d, image %d: Go: %v, libturbojpeg: %v", seed, done, inGo, err)
			case !bytes.Equal(pix, pixels):
				unequal++
				if runtime.GOARCH == "amd64" { // other processors limit large coefficients differently
					t.Errorf("seed %d, image %d at 1/%d: the pixels differ", seed, done, denominator)
				}
			}
			if err == nil && (len(pix) != 3*w*hh || w < 1 || hh < 1 || w > h.Width || hh > h.Height) {
				t.Fatalf("seed %d, image %d, %s: %d x %d pixels in %d bytes from %+v", seed, done, name, w, hh,
					len(pix), h)
			}
		}
	}
	t.Logf("%d images from %d seeds, %d times decoded, %d only for libturbojpeg, %d with other pixels, the slowest within %v",
		done, len(all), decoded, foreign, unequal, slowest)
	if decoded < done/20 {
		t.Errorf("only %d of %d were decoded: mutations are too harsh to test anything behind the headers", decoded,
			done)
	}
	if foreign > done/50 || unequal > done/50 {
		t.Errorf("of %d images, %d are only for libturbojpeg and %d have other pixels, want at most %d", done, foreign,
			unequal, done/50)
	}
}
