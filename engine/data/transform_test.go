package data

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func square(pix []byte, size int) *Image {
	return &Image{Pix: pix, Width: size, Height: size, FullWidth: size, FullHeight: size}
}

func newTransformer(t testing.TB, o Transform, seed uint64) *transformer {
	t.Helper()
	o, err := o.normalized()
	if err != nil {
		t.Fatal(err)
	}
	p := o.prepared(seed)
	return &p
}

// paddedCrop is a simple version of shifted. It builds the padded image, and cuts a square out of it.
func paddedCrop(src []byte, size, pad, top, left int, flip bool) []byte {
	wide := size + 2*pad
	padded := make([]byte, 3*wide*wide)
	for y := range size {
		copy(padded[3*((y+pad)*wide+pad):], src[3*y*size:][:3*size])
	}
	var out []byte
	for y := range size {
		for x := range size {
			from := x
			if flip {
				from = size - 1 - x
			}
			at := 3 * ((top+y)*wide + left + from)
			out = append(out, padded[at:at+3]...)
		}
	}
	return out
}

func TestShiftedEqualsPaddingAndCutting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, pad := rapid.IntRange(1, 9).Draw(t, "size"), rapid.IntRange(0, 12).Draw(t, "pad")
		top, left := rapid.IntRange(0, 2*pad).Draw(t, "top"), rapid.IntRange(0, 2*pad).Draw(t, "left")
		flip := rapid.Bool().Draw(t, "flip")
		src := picture(size, size)
		got := bytes.Repeat([]byte{0xAA}, len(src))
		shifted(got, src, size, left-pad, top-pad, flip)
		if want := paddedCrop(src, size, pad, top, left, flip); !bytes.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestPadCropOffsetsAndFlipsAreUniform(t *testing.T) {
	const size, pad, samples = 16, 2, 20_000
	// Each source pixel contains its position. The output therefore shows the offset of the crop.
	src := make([]byte, 3*size*size)
	for y := range size {
		for x := range size {
			src[3*(y*size+x)], src[3*(y*size+x)+1] = byte(x+1), byte(y+1)
		}
	}
	p := newTransformer(t, Transform{Crop: PadCrop, Size: size, Pad: pad, Flip: true}, 3)
	dst := make([]byte, len(src))
	var shiftX, shiftY [2*pad + 1]int
	var flips [2]int
	for i := range samples {
		p.begin(0, i)
		p.apply(dst, square(src, size))
		const middle = size / 2
		at := 3 * (middle*size + middle)
		shiftY[int(dst[at+1])-1-middle+pad]++
		if dst[at+3] > dst[at] {
			flips[0]++
			shiftX[int(dst[at])-1-middle+pad]++
		} else {
			flips[1]++
			shiftX[int(dst[at])-1-(size-1-middle)+pad]++
		}
	}
	for name, count := range map[string][]int{"columns": shiftX[:], "rows": shiftY[:], "flips": flips[:]} {
		if x, limit := chiSquare(count, float64(samples)/float64(len(count))); x > limit {
			t.Errorf("%s: counts %v, chi-square %.1f, want at most %.1f", name, count, x, limit)
		}
	}
}

func TestResizedCropHasTorchvisionsDistribution(t *testing.T) {
	const w, h, samples = 500, 375, 20_000
	p := newTransformer(t, Transform{Crop: ResizedCrop, Size: 224}, 9)
	var fraction, logRatio []float64
	for i := range samples {
		d := newDraws(p.seed, 0, i, streamAugment)
		r := p.resizedRect(&d, w, h)
		if r.x < 0 || r.y < 0 || r.w < 1 || r.h < 1 || r.x+r.w > w || r.y+r.h > h {
			t.Fatalf("sample %d: %+v lies outside of %d x %d", i, r, w, h)
		}
		area, ratio := float64(r.w*r.h)/(w*h), float64(r.w)/float64(r.h)
		// Rounding to whole pixels changes the area and the ratio slightly.
		if area < 0.08*0.98 || ratio < 0.75*0.99 || ratio > 4.0/3*1.01 {
			t.Fatalf("sample %d: %+v has area %.4f and ratio %.4f", i, r, area, ratio)
		}
		fraction, logRatio = append(fraction, area), append(logRatio, math.Log(ratio))
	}
	// The expected values are means over 4e7 draws of torchvision's published algorithm, for this image size
	// (testdata/resized_crop.py). The mean area is below 0.54, because areas near 1 seldom fit into the image. The
	// tolerance is five standard errors.
	for _, c := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"fraction of the area", fraction, 0.43291},
		{"logarithm of the ratio", logRatio, 0.03064},
	} {
		mean, deviation := moments(c.values)
		if limit := 5 * deviation / math.Sqrt(samples); math.Abs(mean-c.want) > limit {
			t.Errorf("%s: mean %.5f, want %.5f within %.5f", c.name, mean, c.want, limit)
		}
	}
}

func moments(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(deviation)
}

func TestResizedCropOfExtremeImagesFallsBackToTheLargestCentredRectangle(t *testing.T) {
	p := newTransformer(t, Transform{Crop: ResizedCrop, Size: 8, MinArea: 0.9}, 1)
	for _, c := range []struct {
		name string
		w, h int
		want rect
	}{
		{"wide", 1000, 30, rect{480, 0, 40, 30}},
		{"tall", 30, 1000, rect{0, 480, 30, 40}},
		{"one pixel", 1, 1, rect{0, 0, 1, 1}},
	} {
		d := newDraws(p.seed, 0, 0, streamAugment)
		if got := p.resizedRect(&d, c.w, c.h); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestExponentialIsExact(t *testing.T) {
	for x := -0.3; x <= 0.3; x += 0.001 {
		if got, want := exponential(x), math.Exp(x); math.Abs(got-want) > 4e-16*want {
			t.Errorf("exponential(%g) = %v, want %v", x, got, want)
		}
	}
}

func TestTransformsAcceptAnyImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 90).Draw(t, "width"), rapid.IntRange(1, 90).Draw(t, "height")
		o := Transform{
			Crop: rapid.SampledFrom([]Crop{CentreCrop, PadCrop, ResizedCrop}).Draw(t, "crop"),
			Size: rapid.IntRange(1, 40).Draw(t, "size"),
			Pad:  rapid.IntRange(0, 50).Draw(t, "pad"),
		}
		o.Flip = o.Crop != CentreCrop
		if o.Crop == CentreCrop {
			o.Resize = o.Size + rapid.IntRange(0, 10).Draw(t, "border")
		}
		o, err := o.normalized()
		if err != nil {
			t.Fatal(err)
		}
		p := &transformer{t: o, seed: rapid.Uint64().Draw(t, "seed")}
		p.begin(rapid.IntRange(0, 5).Draw(t, "epoch"), rapid.IntRange(0, 1000).Draw(t, "index"))
		minW, minH := p.MinSize(w, h)
		if minW < 1 || minW > w || minH < 1 || minH > h {
			t.Fatalf("MinSize(%d, %d) = %d, %d", w, h, minW, minH)
		}
		// Every decoded size from the smallest one to the full size must be sufficient.
		dw, dh := rapid.IntRange(minW, w).Draw(t, "decoded width"), rapid.IntRange(minH, h).Draw(t, "decoded height")
		img := &Image{Pix: bytes.Repeat([]byte{200}, 3*dw*dh), Width: dw, Height: dh, FullWidth: w, FullHeight: h}
		dst := bytes.Repeat([]byte{7}, 3*o.Size*o.Size)
		p.apply(dst, img)
		for i, v := range dst {
			if v != 200 && (o.Crop != PadCrop || v != 0) {
				t.Fatalf("byte %d of a constant image is %d", i, v)
			}
		}
	})
}

func TestScaledDecodesKeepEnoughPixels(t *testing.T) {
	p := newTransformer(t, Transform{Crop: ResizedCrop, Size: 224}, 2)
	for i := range 1000 {
		p.begin(1, i)
		const w, h = 1500, 1100
		minW, minH := p.MinSize(w, h)
		d := newDraws(p.seed, 1, i, streamAugment)
		r := p.resizedRect(&d, w, h)
		// The crop of the decoded image must have at least as many pixels as the output. An image that was decoded at
		// its full size is the exception.
		if minW < w && r.w*minW < 224*w || minH < h && r.h*minH < 224*h {
			t.Fatalf("sample %d: crop %+v of an image decoded at %d x %d is smaller than the output", i, r, minW, minH)
		}
	}
}

func TestCentreCropCopiesAnImageOfTheRightSize(t *testing.T) {
	p := newTransformer(t, Transform{Size: 32}, 0)
	src, dst := picture(32, 32), make([]byte, 3*32*32)
	p.apply(dst, square(src, 32))
	if !bytes.Equal(dst, src) {
		t.Error("pixels changed")
	}
}

func TestCentreCropTakesTheMiddle(t *testing.T) {
	// The columns of a wide image have the values 0 to 63. Its height is that of the output, so nothing is resized.
	// Columns 16 to 47 must remain.
	const w, h = 64, 32
	src := make([]byte, 3*w*h)
	for i := range src {
		src[i] = byte(i / 3 % w)
	}
	p := newTransformer(t, Transform{Size: h}, 0)
	dst := make([]byte, 3*h*h)
	p.apply(dst, &Image{Pix: src, Width: w, Height: h, FullWidth: w, FullHeight: h})
	for i, got := range dst {
		if want := byte(16 + i/3%h); got != want {
			t.Fatalf("byte %d is %d, want %d", i, got, want)
		}
	}
}

func TestWrongTransformsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		t    Transform
		want string
	}{
		{"no size", Transform{}, "image size is 0 pixels, want 1"},
		{"resize below size", Transform{Size: 224, Resize: 200}, "shorter side is 200 pixels, want 224"},
		{"negative padding", Transform{Crop: PadCrop, Size: 32, Pad: -1}, "padding is -1"},
		{"area above one", Transform{Crop: ResizedCrop, Size: 32, MinArea: 1.5}, "minimum area is 1.5"},
		{"area not a number", Transform{Crop: ResizedCrop, Size: 32, MinArea: math.NaN()}, "minimum area is NaN"},
		{"flipped centre", Transform{Size: 32, Flip: true}, "flip is set with a centre crop"},
		{"unknown crop", Transform{Crop: 9, Size: 32}, "unknown crop 9"},
	} {
		if _, err := c.t.normalized(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
