package jpeg

import (
	"bytes"
	"fmt"
	"go/build"
	"image"
	"image/color"
	"image/jpeg"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// TestMain sets the path of the library that `make` built.
func TestMain(m *testing.M) {
	if _, set := os.LookupEnv("HETERO_LIB_DIR"); !set {
		if dir, err := filepath.Abs("../../../build/lib"); err == nil {
			os.Setenv("HETERO_LIB_DIR", dir)
		}
	}
	os.Exit(m.Run())
}

// decoders returns a decoder for each available library.
func decoders(t testing.TB) map[string]*Decoder {
	t.Helper()
	all := map[string]*Decoder{"Go": {}}
	if c := InUse(); c.Native {
		d, err := NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		all["libturbojpeg"] = d
	} else if needtest.Required(t, "jpeg") {
		t.Fatalf("libturbojpeg is required, but %s", c.Reason)
	}
	return all
}

// nativeDecoder returns a decoder that uses libturbojpeg, or skips the test.
func nativeDecoder(t testing.TB) *Decoder {
	t.Helper()
	d, ok := decoders(t)["libturbojpeg"]
	if !ok {
		needtest.Missing(t, "jpeg", InUse().Reason)
	}
	return d
}

// gradient returns a smooth image, for which all decoders agree up to rounding.
func gradient(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{uint8(40 + 170*x/max(w, 64)), uint8(60 + 130*y/max(h, 64)),
				uint8(200 - 100*(x+y)/max(w+h, 128)), 255})
		}
	}
	return img
}

func encode(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// decode reads the header of an image and decodes the image.
func decode(d *Decoder, contents []byte, denominator int) (pix []byte, w, h int, err error) {
	head, err := d.Header(contents)
	if err != nil {
		return nil, 0, 0, err
	}
	return d.Decode(contents, head, denominator, nil)
}

// tolerance is in steps of the scale from 0 to 255. JPEG of quality 95 with subsampled colours changes a smooth image
// by a few steps.
const tolerance = 6

func TestDecodesColourAndGreyToRGB(t *testing.T) {
	for name, d := range decoders(t) {
		for _, size := range [][2]int{{1, 1}, {7, 5}, {16, 16}, {33, 70}, {500, 375}} {
			w, h := size[0], size[1]
			src := gradient(w, h)
			grey := image.NewGray(src.Rect)
			for i := range grey.Pix {
				grey.Pix[i] = uint8(i % w * 255 / max(w, 64))
			}
			for kind, img := range map[string]image.Image{"colour": src, "grey": grey} {
				pix, gotW, gotH, err := decode(d, encode(t, img), 1)
				if err != nil || gotW != w || gotH != h {
					t.Fatalf("%s, %s %dx%d: %d x %d, %v", name, kind, w, h, gotW, gotH, err)
				}
				for i := range w * h {
					c := color.RGBAModel.Convert(img.At(i%w, i/w)).(color.RGBA)
					for k, want := range []uint8{c.R, c.G, c.B} {
						if got := pix[3*i+k]; max(got, want)-min(got, want) > tolerance {
							t.Fatalf("%s, %s %dx%d: pixel %d channel %d is %d, want %d", name, kind, w, h, i, k, got,
								want)
						}
					}
				}
			}
		}
	}
}

func TestScaledDecodeIsASmallerImageOfTheSame(t *testing.T) {
	for name, d := range decoders(t) {
		for _, size := range [][2]int{{500, 375}, {257, 511}, {9, 9}} {
			whole := gradient(size[0], size[1])
			contents := encode(t, whole)
			for _, n := range []int{2, 4, 8} {
				pix, w, h, err := decode(d, contents, n)
				if err != nil || w != (size[0]+n-1)/n || h != (size[1]+n-1)/n || len(pix) != 3*w*h {
					t.Fatalf("%s, %v / %d: %d x %d, %d bytes, %v", name, size, n, w, h, len(pix), err)
				}
				for i := range w * h {
					// The pixel represents a square of original pixels, and c is the colour at the centre of this
					// square.
					c := whole.RGBAAt(min(i%w*n+n/2, size[0]-1), min(i/w*n+n/2, size[1]-1))
					if got := pix[3*i]; max(got, c.R)-min(got, c.R) > tolerance {
						t.Fatalf("%s, %v / %d: pixel %d is %d, want %d", name, size, n, i, got, c.R)
					}
				}
			}
		}
	}
}

func TestTruncatedImagesAreErrors(t *testing.T) {
	contents := encode(t, gradient(160, 120))
	for name, d := range decoders(t) {
		for cut := 0; cut < len(contents)-2; cut += max(len(contents)/200, 1) {
			if _, _, _, err := decode(d, contents[:cut], 1); err == nil {
				t.Errorf("%s: %d of %d bytes are decoded without an error", name, cut, len(contents))
			}
		}
		if _, _, _, err := decode(d, contents, 1); err != nil {
			t.Errorf("%s: after the errors, a whole image: %v", name, err)
		}
	}
}

func TestPaddingBeforeAMarkerIsHarmless(t *testing.T) {
	contents := encode(t, gradient(64, 64))
	end := len(contents) - 2
	padded := append(append(bytes.Clone(contents[:end]), make([]byte, 30)...), contents[end:]...)
	for name, d := range decoders(t) {
		want, _, _, err := decode(d, contents, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _, err := decode(d, padded, 1); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: padding: %v", name, err)
		}
		if _, _, _, err := decode(d, padded[:len(padded)-2], 1); err == nil {
			t.Errorf("%s: padding without an end marker is decoded without an error", name)
		}
	}
}

func TestDamagedImagesAreErrors(t *testing.T) {
	contents := encode(t, gradient(160, 120))
	damaged := bytes.Clone(contents)
	copy(damaged[len(damaged)/2:], []byte{0xFF, 0xD9}) // an end marker in the middle of the pixel data
	for name, d := range decoders(t) {
		if _, _, _, err := decode(d, damaged, 1); err == nil {
			t.Errorf("%s: a damaged image is decoded without an error", name)
		}
	}
}

func TestImagesWithFourInksAreDecoded(t *testing.T) {
	dir := filepath.Join(build.Default.GOROOT, "src", "image", "testdata")
	contents, err := os.ReadFile(filepath.Join(dir, "video-001.cmyk.jpeg"))
	if err != nil {
		needtest.Missing(t, "goroot", err)
	}
	plain, err := os.ReadFile(filepath.Join(dir, "video-001.jpeg"))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range decoders(t) {
		got, w, h, err := decode(d, contents, 1)
		if err != nil || w != 150 || h != 103 {
			t.Fatalf("%s: %d x %d, %v", name, w, h, err)
		}
		want, _, _, err := decode(d, plain, 1)
		if err != nil {
			t.Fatal(err)
		}
		// For correct colours, a decoder would have to apply the colour profile of the inks. These decoders do not, so
		// colours differ. The structure of the image is the same.
		if c := correlation(got, want); c < 0.9 {
			t.Errorf("%s: correlation with the RGB version is %.2f, want 0.9", name, c)
		}
	}
}

func correlation(a, b []byte) float64 {
	var sumA, sumB, sumAA, sumBB, sumAB float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		sumA, sumB, sumAA, sumBB, sumAB = sumA+x, sumB+y, sumAA+x*x, sumBB+y*y, sumAB+x*y
	}
	n := float64(len(a))
	return (n*sumAB - sumA*sumB) / math.Sqrt((n*sumAA-sumA*sumA)*(n*sumBB-sumB*sumB))
}

func TestManyScansAreRefused(t *testing.T) {
	for name, d := range decoders(t) {
		if _, err := d.Header(progressive(16, 16, maxScans+1)); err == nil ||
			!strings.Contains(err.Error(), "501 scans") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDecodeReusesItsBufferAndAllocatesNothing(t *testing.T) {
	for name, d := range decoders(t) {
		for _, contents := range [][]byte{encode(t, gradient(64, 48)), progressive(64, 48, 3)} {
			buf := make([]byte, 3*64*48)
			if n := testing.AllocsPerRun(50, func() {
				h, err := d.Header(contents)
				if err != nil {
					t.Fatal(err)
				}
				if pix, _, _, err := d.Decode(contents, h, 1, buf); err != nil || &pix[0] != &buf[0] {
					t.Fatal("another buffer, or ", err)
				}
			}); n != 0 {
				t.Errorf("%s: %.1f allocations an image", name, n)
			}
		}
	}
}

func TestInUseSaysWhich(t *testing.T) {
	c := InUse()
	if c.Native != strings.HasPrefix(c.Name, "libturbojpeg (") || c.Native != (c.Reason == "") {
		t.Errorf("%+v", c)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, gradient(20, 13)), uint8(0))
	f.Add(encode(f, image.NewGray(image.Rect(0, 0, 9, 9))), uint8(2))
	f.Add([]byte("\xFF\xD8\xFF\xD9"), uint8(1))
	all := decoders(f)
	f.Fuzz(func(t *testing.T, contents []byte, log uint8) {
		for name, d := range all {
			h, err := d.Header(contents)
			if err != nil || h.Width*h.Height > 1<<20 {
				continue
			}
			pix, w, hh, err := d.Decode(contents, h, 1<<(log%4), nil)
			if err == nil && (len(pix) != 3*w*hh || w < 1 || hh < 1 || w > h.Width || hh > h.Height) {
				t.Fatalf("%s: %d x %d pixels in %d bytes from %+v", name, w, hh, len(pix), h)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for name, d := range decoders(b) {
		for _, size := range [][2]int{{32, 32}, {500, 375}} {
			contents := encode(b, gradient(size[0], size[1]))
			buf := make([]byte, 3*size[0]*size[1])
			b.Run(fmt.Sprintf("%s/%dx%d", name, size[0], size[1]), func(b *testing.B) {
				for b.Loop() {
					h, err := d.Header(contents)
					if err != nil {
						b.Fatal(err)
					}
					if _, _, _, err := d.Decode(contents, h, 1, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFolder decodes the JPEG files in $HETERO_BENCH_IMAGES. scripts/decode_speed.sh compares it with a simple
// loop that calls libturbojpeg.
func BenchmarkFolder(b *testing.B) {
	dir := os.Getenv("HETERO_BENCH_IMAGES")
	if dir == "" {
		b.Skip("HETERO_BENCH_IMAGES is not set")
	}
	var files [][]byte
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".jpg") {
			var contents []byte
			contents, err = os.ReadFile(path)
			files = append(files, contents)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		b.Fatalf("%d files: %v", len(files), err)
	}
	for name, d := range decoders(b) {
		b.Run(name, func(b *testing.B) { benchmarkFiles(b, d, files) })
	}
}

func benchmarkFiles(b *testing.B, d *Decoder, files [][]byte) {
	var buf []byte
	pass := func(n int) {
		for i := range n {
			contents := files[i%len(files)]
			h, err := d.Header(contents)
			if err != nil {
				b.Fatal(err)
			}
			if buf, _, _, err = d.Decode(contents, h, 1, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	pass(len(files))
	b.ResetTimer()
	before := cpuSeconds()
	pass(b.N)
	b.ReportMetric(float64(b.N)/(cpuSeconds()-before), "images/cpu-s")
}

func cpuSeconds() float64 {
	spent, err := platform.ProcessTime()
	if err != nil {
		return math.NaN()
	}
	return spent.Seconds()
}
