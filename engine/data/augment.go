package data

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/data/pixels"
)

// Augment changes the colours of a training image, changes its geometry, and erases parts of it. The order is
// RandAugment, colour jitter, erasing. Every random choice is a function of (seed, epoch, sample index).
type Augment struct {
	Rand   RandAugment
	Jitter ColorJitter
	Erase  RandomErase
}

// RandAugment applies Ops random operations of one magnitude. It draws them with repetition from the fourteen
// operations of torchvision (E. Cubuk et al., "RandAugment", 2019). Geometric operations use the nearest pixel;
// pixels from outside the image are black.
type RandAugment struct {
	Ops       int     // number of operations; 0 means off
	Magnitude float64 // 0 to 30, as torchvision's 31 bins; fractions are valid
	Std       float64 // standard deviation of the magnitude; each operation draws its own magnitude
}

// ColorJitter changes brightness, contrast and saturation by factors that are uniform in [max(0, 1-x), 1+x]. It
// rotates the hue by a uniform amount within ±Hue turns. The four operations have a random order. ColorJitter
// corresponds to torchvision's ColorJitter.
type ColorJitter struct {
	Brightness, Contrast, Saturation float64
	Hue                              float64 // 0 to 0.5 of a turn
}

func (c ColorJitter) enabled() bool { return c != ColorJitter{} }

// normalized returns the settings with defaults, or an error for invalid settings.
func (a Augment) normalized() (Augment, error) {
	var errs []error
	check := func(name string, got, least, most float64) {
		if !(got >= least && got <= most) {
			errs = append(errs, fmt.Errorf("augmentation: %s is %g, want %g to %g", name, got, least, most))
		}
	}
	check("number of RandAugment operations", float64(a.Rand.Ops), 0, 64)
	check("RandAugment magnitude", a.Rand.Magnitude, 0, maxMagnitude)
	check("deviation of the RandAugment magnitude", a.Rand.Std, 0, maxMagnitude)
	check("brightness", a.Jitter.Brightness, 0, 100)
	check("contrast", a.Jitter.Contrast, 0, 100)
	check("saturation", a.Jitter.Saturation, 0, 100)
	check("hue", a.Jitter.Hue, 0, 0.5)
	err := a.Erase.check(check)
	a.Erase = a.Erase.withDefaults()
	return a, errors.Join(append(errs, err)...)
}

// augmenter applies an Augment to square images. Each worker has its own augmenter.
type augmenter struct {
	a     Augment
	paint *paint // fills erased rectangles
	other []byte // output buffer of geometric operations and of sharpness
}

// apply changes pix (size, size, 3). The arguments seed, epoch and index determine the random numbers.
func (g *augmenter) apply(pix []byte, size int, seed uint64, epoch, index int) {
	if g.a.Rand.Ops > 0 {
		d := newDraws(seed, epoch, index, streamRandAugment)
		for range g.a.Rand.Ops {
			g.randomOp(&d, pix, size)
		}
	}
	if g.a.Jitter.enabled() {
		d := newDraws(seed, epoch, index, streamJitter)
		g.a.Jitter.apply(&d, pix)
	}
	if g.a.Erase.Probability > 0 {
		d := newDraws(seed, epoch, index, streamErase)
		g.a.Erase.apply(&d, g.paint, pix, size)
	}
}

// apply always draws the order and all four factors, even if a setting is off. One setting therefore does not affect
// the random numbers of another.
func (c ColorJitter) apply(d *draws, pix []byte) {
	order := [4]int{0, 1, 2, 3}
	for i := 3; i > 0; i-- {
		j := d.below(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	factor := func(x float64) float64 { return d.between(max(0, 1-x), 1+x) }
	brightness, contrast, saturation := factor(c.Brightness), factor(c.Contrast), factor(c.Saturation)
	hue := d.between(-c.Hue, c.Hue)
	for _, op := range order {
		switch {
		case op == 0 && c.Brightness > 0:
			pixels.Brightness(pix, brightness)
		case op == 1 && c.Contrast > 0:
			pixels.Contrast(pix, contrast)
		case op == 2 && c.Saturation > 0:
			pixels.Saturation(pix, saturation)
		case op == 3 && c.Hue > 0:
			pixels.Hue(pix, hue)
		}
	}
}

// maxMagnitude is the last of torchvision's 31 bins.
const maxMagnitude = 30

// The operations of RandAugment in torchvision's order.
const (
	opIdentity = iota
	opShearX
	opShearY
	opTranslateX
	opTranslateY
	opRotate
	opBrightness
	opColor
	opContrast
	opSharpness
	opPosterize
	opSolarize
	opAutoContrast
	opEqualize
	randomOps
)

// randomOp draws an operation, its magnitude and its direction, and applies it.
func (g *augmenter) randomOp(d *draws, pix []byte, size int) {
	op := d.below(randomOps)
	m := g.a.Rand.Magnitude
	if g.a.Rand.Std > 0 {
		m = min(max(m+float64(g.a.Rand.Std*d.normal()), 0), maxMagnitude)
	}
	m /= maxMagnitude
	sign := 1 - 2*float64(d.below(2))
	switch op {
	case opShearX:
		g.affine(pixels.ShearX(sign*0.3*m), pix, size)
	case opShearY:
		g.affine(pixels.ShearY(sign*0.3*m), pix, size)
	case opTranslateX:
		g.affine(pixels.Translate(int(sign*translation(m, size)), 0), pix, size)
	case opTranslateY:
		g.affine(pixels.Translate(0, int(sign*translation(m, size))), pix, size)
	case opRotate:
		g.affine(pixels.Rotate(sign*30*m, size, size), pix, size)
	case opBrightness:
		pixels.Brightness(pix, 1+float64(sign*0.9*m))
	case opColor:
		pixels.Saturation(pix, 1+float64(sign*0.9*m))
	case opContrast:
		pixels.Contrast(pix, 1+float64(sign*0.9*m))
	case opSharpness:
		g.other = resize(g.other, len(pix))
		pixels.Sharpness(g.other, pix, size, 1+float64(sign*0.9*m))
		copy(pix, g.other)
	case opPosterize:
		pixels.Posterize(pix, 8-int(math.RoundToEven(4*m)))
	case opSolarize:
		pixels.Solarize(pix, 255-float64(255*m))
	case opAutoContrast:
		pixels.AutoContrast(pix)
	case opEqualize:
		pixels.Equalize(pix)
	}
}

// translation returns the translation of torchvision's operation in pixels. Magnitude 1 is 150/331 of the size.
func translation(m float64, size int) float64 { return 150.0 / 331.0 * float64(size) * m }

func (g *augmenter) affine(m pixels.Affine, pix []byte, size int) {
	g.other = resize(g.other, len(pix))
	m.Apply(g.other, pix, size, size)
	copy(pix, g.other)
}
