package data

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// photo returns an image with a different smooth pattern in each channel.
func photo(size int) []byte {
	pix := make([]byte, 3*size*size)
	for i := range pix {
		x, y := i/3%size, i/3/size
		pix[i] = byte(128 + 100*math.Sin(float64(x*(1+i%3))/5)*math.Cos(float64(y)/7))
	}
	return pix
}

func augment(t testing.TB, a Augment, pix []byte, size int, seed uint64, epoch, index int) []byte {
	t.Helper()
	a, err := a.normalized()
	if err != nil {
		t.Fatal(err)
	}
	g := augmenter{a: a}
	if a.Erase.Probability > 0 {
		g.paint = newPaint(a.Erase.Normalization)
	}
	out := bytes.Clone(pix)
	g.apply(out, size, seed, epoch, index)
	return out
}

func TestAugmentationIsAFunctionOfSeedEpochAndIndex(t *testing.T) {
	const size = 24
	pix := photo(size)
	for name, a := range map[string]Augment{
		"RandAugment": {Rand: RandAugment{Ops: 3, Magnitude: 20, Std: 2}},
		"jitter":      {Jitter: ColorJitter{0.4, 0.4, 0.4, 0.2}},
		"erasing":     {Erase: RandomErase{Probability: 1, Mode: ErasePixel, Normalization: NormalizeImageNet}},
	} {
		once := augment(t, a, pix, size, 1, 2, 3)
		if !bytes.Equal(once, augment(t, a, pix, size, 1, 2, 3)) {
			t.Errorf("%s: two results for the same numbers", name)
		}
		for _, other := range [][3]int{{2, 2, 3}, {1, 3, 3}, {1, 2, 4}} {
			if bytes.Equal(once, augment(t, a, pix, size, uint64(other[0]), other[1], other[2])) {
				t.Errorf("%s: the same result for numbers %v", name, other)
			}
		}
	}
}

// All operations must be drawn about equally often. The test recognises an operation by its effect on an image.
func TestRandAugmentDrawsAllOperationsInBothDirections(t *testing.T) {
	const size, n = 16, 2000
	pix := photo(size)
	results := map[string]int{}
	for i := range n {
		results[string(augment(t, Augment{Rand: RandAugment{Ops: 1, Magnitude: 15}}, pix, size, 1, 0, i))]++
	}
	// 9 operations have two directions. Identity, posterize, solarize, autocontrast and equalize have only one
	// direction.
	if len(results) != 9*2+5 {
		t.Errorf("%d different results, want 23", len(results))
	}
	for r, count := range results {
		if want := n / 14.0; float64(count) > want+5*math.Sqrt(want) || float64(count) < want/2-5*math.Sqrt(want/2) {
			t.Errorf("result %.8q… %d times", r, count)
		}
	}
}

func TestErasedPartIsAsAsked(t *testing.T) {
	const size, n = 64, 3000
	pix := photo(size)
	for i := range pix {
		pix[i] |= 1 // odd values, unlike the fill values, which are even
	}
	even := Normalization{Mean: [3]float32{100.0 / 255, 50.0 / 255, 200.0 / 255}, Std: [3]float32{1, 1, 1}}
	erased, area := 0, 0.0
	for i := range n {
		out := augment(t, Augment{Erase: RandomErase{Probability: 0.25, Normalization: even}}, pix, size, 5, 0, i)
		left, right, top, bottom, count := size, -1, size, -1, 0
		for p := 0; p < len(out); p += 3 {
			if bytes.Equal(out[p:p+3], pix[p:p+3]) {
				continue
			}
			if out[p] != 100 || out[p+1] != 50 || out[p+2] != 200 {
				t.Fatalf("filled with %v, want the mean", out[p:p+3])
			}
			x, y := p/3%size, p/3/size
			left, right, top, bottom, count = min(left, x), max(right, x), min(top, y), max(bottom, y), count+1
		}
		if count == 0 {
			continue
		}
		erased++
		area += float64(count) / (size * size)
		if w, h := right-left+1, bottom-top+1; w*h != count || float64(w*h) > 0.36*size*size ||
			float64(w*h) < 0.015*size*size || w > 5*h || h > 5*w {
			t.Fatalf("%d pixels erased within %d x %d", count, w, h)
		}
	}
	if fraction := float64(erased) / n; math.Abs(fraction-0.25) > 5*math.Sqrt(0.25*0.75/n) {
		t.Errorf("%g of the images are erased, want 0.25", fraction)
	}
	// The erased areas are between 2 % and 1/3 of an image, with a mean of 17.7 %. Rectangles that do not fit into the
	// image are drawn again, which favours small ones.
	if mean := area / float64(erased); mean < 0.16 || mean > 0.19 {
		t.Errorf("%.3f of an image is erased on average, want about 0.177", mean)
	}
}

// In painted pixels, the frequency of each byte must match its probability: that of a normally distributed number that
// is rounded to this byte.
func TestPaintIsNormallyDistributed(t *testing.T) {
	n := Normalization{Mean: [3]float32{0.485, 0.02, 0.5}, Std: [3]float32{0.229, 0.1, 0.004}}
	p := newPaint(n)
	for ch := range p.alias {
		total := 0.0
		got := [256]float64{}
		for v, e := range p.alias[ch] {
			got[v] += float64(e.threshold) / (1 << 24) / 256
			got[e.other] += (1 - float64(e.threshold)/(1<<24)) / 256
		}
		for v, fraction := range got {
			cdf := func(x float64) float64 {
				return 0.5 * math.Erfc(-(x-float64(n.Mean[ch])*255)/(float64(n.Std[ch])*255*math.Sqrt2))
			}
			lo, hi := cdf(float64(v)-0.5), cdf(float64(v)+0.5)
			if v == 0 {
				lo = 0
			}
			if v == 255 {
				hi = 1
			}
			if math.Abs(fraction-(hi-lo)) > 2e-7 {
				t.Errorf("channel %d: byte %d has probability %g, want %g", ch, v, fraction, hi-lo)
			}
			total += fraction
		}
		if math.Abs(total-1) > 1e-9 {
			t.Errorf("channel %d: probabilities sum to %g", ch, total)
		}
	}
}

func TestExactFunctionsAreThoseOfPackageMath(t *testing.T) {
	for x := -700.0; x < 700; x += 0.37 {
		if got, want := exponentialWide(x), math.Exp(x); math.Abs(got/want-1) > 3e-12 {
			// squaring ten times multiplies rounding errors by 1,024
			t.Errorf("e^%g: got %g, want %g", x, got, want)
		}
	}
	for x := 1e-300; x < 1e300; x *= 1.7 {
		if got, want := logarithm(x), math.Log(x); math.Abs(got-want) > 4e-16*max(math.Abs(want), 1) {
			t.Errorf("ln %g: got %g, want %g", x, got, want)
		}
	}
	for z := -9.5; z < 9.5; z += 0.11 {
		if got, want := normalBelow(z), 0.5*math.Erfc(-z/math.Sqrt2); math.Abs(got-want) > 1e-13 {
			// e^(z²/2) amplifies rounding errors
			t.Errorf("normal below %g: got %g, want %g", z, got, want)
		}
	}
}

func TestDrawsAreDistributedAsNamed(t *testing.T) {
	const n = 40_000
	d := newDraws(3, 0, 0, streamMix)
	check := func(name string, draw func() float64, mean, variance, kurtosis float64) {
		t.Helper()
		var m1, m2 float64
		for range n {
			v := draw()
			m1 += v
			m2 += (v - mean) * (v - mean)
		}
		if got := m1 / n; math.Abs(got-mean) > 5*math.Sqrt(variance/n) {
			t.Errorf("%s: mean %g, want %g", name, got, mean)
		}
		if got := m2 / n; math.Abs(got-variance) > 5*variance*math.Sqrt((kurtosis-1)/n) {
			t.Errorf("%s: variance %g, want %g", name, got, variance)
		}
	}
	check("normal", d.normal, 0, 1, 3)
	for _, a := range []float64{0.01, 0.2, 1, 1.5, 8, 300} {
		// Beta(a, a): kurtosis 3 - 6/(2a+3)
		check("beta", func() float64 { return d.beta(a) }, 0.5, 1/(4*(2*a+1)), 3-6/(2*a+3))
	}
}

func TestAugmentationThatCannotBeIsRefused(t *testing.T) {
	for want, a := range map[string]Augment{
		"operations is -1":                {Rand: RandAugment{Ops: -1}},
		"magnitude is 31":                 {Rand: RandAugment{Ops: 1, Magnitude: 31}},
		"hue is 0.6":                      {Jitter: ColorJitter{Hue: 0.6}},
		"brightness is NaN":               {Jitter: ColorJitter{Brightness: math.NaN()}},
		"probability of erasing":          {Erase: RandomErase{Probability: 1.5, Normalization: NormalizeImageNet}},
		"deviation of erased pixels is 0": {Erase: RandomErase{Probability: 1}},
		"unknown mode 9 of erasing":       {Erase: RandomErase{Mode: 9}},
	} {
		if _, err := (Transform{Size: 8, Augment: a}).normalized(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", a, err, want)
		}
	}
}

func TestAugmentationAllocatesNothing(t *testing.T) {
	const size = 32
	tr, err := Transform{Size: size, Crop: PadCrop, Augment: augmented.Augment}.normalized()
	if err != nil {
		t.Fatal(err)
	}
	p := tr.prepared(1)
	img, dst := square(photo(size), size), make([]byte, 3*size*size)
	index := 0
	if n := testing.AllocsPerRun(300, func() {
		p.begin(0, index)
		p.apply(dst, img)
		index++
	}); n != 0 {
		t.Errorf("%.2f allocations an image", n)
	}
}
