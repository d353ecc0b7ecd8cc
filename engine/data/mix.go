package data

import (
	"errors"
	"fmt"
	"math"
)

// MixMode determines which samples have the same random choice.
type MixMode uint8

// The modes are those of timm.
const (
	MixBatch   MixMode = iota // all samples of an optimizer step
	MixPair                   // the two samples of a pair of partners
	MixElement                // each sample has its own choice
)

// Mix combines the image and the label of a training sample with those of a partner. Mixup (H. Zhang et al., 2017)
// computes a weighted mean of both images. Cutmix (S. Yun et al., 2019) inserts a rectangle of the partner. The
// distributions of the choices are those of timm.
//
// The partners of a pair are at positions 2k and 2k+1 of a batch, so few pairs are split between two ranks. timm pairs
// the first sample with the last one. Both pairings are equivalent, because the order of an epoch is random. Images are
// mixed as bytes, after all other augmentation.
type Mix struct {
	MixupAlpha  float64 // parameter a of Beta(a, a), the distribution of mixup's lambda; 0 means no mixup
	CutmixAlpha float64 // the same for cutmix
	Probability float64 // probability that samples are mixed at all
	Switch      float64 // probability of cutmix if mixup and cutmix are enabled
	Mode        MixMode
	OffEpoch    int // first epoch without mixing; 0 means that mixing never ends
}

// Enabled reports whether samples have second labels.
func (m Mix) Enabled() bool { return m.MixupAlpha > 0 || m.CutmixAlpha > 0 }

// check returns an error for invalid settings.
func (m Mix) check() error {
	var errs []error
	within := func(name string, got, most float64) {
		if !(got >= 0 && got <= most) {
			errs = append(errs, fmt.Errorf("mixing: %s is %g, want 0 to %g", name, got, most))
		}
	}
	within("alpha of mixup", m.MixupAlpha, 1000)
	within("alpha of cutmix", m.CutmixAlpha, 1000)
	within("probability", m.Probability, 1)
	within("probability of cutmix", m.Switch, 1)
	if m.Mode > MixElement {
		errs = append(errs, fmt.Errorf("mixing: unknown mode %d", m.Mode))
	}
	if m.OffEpoch < 0 {
		errs = append(errs, fmt.Errorf("mixing: first epoch without mixing is %d, want 0 or more", m.OffEpoch))
	}
	return errors.Join(errs...)
}

// unmixedWeight is the weight of the sample's own pixels in an image that is not mixed.
const unmixedWeight = 1 << 16

// mixing is one random choice. It determines the weights of pixels and labels of a sample.
type mixing struct {
	cut    bool
	box    rect    // rectangle with pixels of the partner, if cut is set
	own    int     // weight of the sample's own pixels in units of 1/unmixedWeight, if cut is not set
	lambda float32 // weight of the sample's own label
}

var unmixed = mixing{own: unmixedWeight, lambda: 1}

func (m mixing) none() bool { return m.lambda == 1 }

// draw makes the choice for a position in the order of the epoch. The result is a function of the seed, the epoch, the
// position and the number of samples per step.
func (m Mix) draw(seed uint64, epoch, position, batchSize, size int) mixing {
	if m.OffEpoch > 0 && epoch >= m.OffEpoch {
		return unmixed
	}
	switch m.Mode {
	case MixBatch:
		position /= batchSize
	case MixPair:
		position /= 2
	}
	d := newDraws(seed, epoch, position, streamMix)
	if d.float64() >= m.Probability {
		return unmixed
	}
	cut := m.MixupAlpha == 0 || m.CutmixAlpha > 0 && d.float64() < m.Switch
	if cut {
		return cutmix(d.beta(m.CutmixAlpha), &d, size)
	}
	own := int(math.RoundToEven(d.beta(m.MixupAlpha) * unmixedWeight))
	return mixing{own: own, lambda: float32(own) / unmixedWeight}
}

// cutmix draws a rectangle with the fraction 1-lambda of the area of the image. The centre is uniformly distributed. If
// the border of the image cuts off a part of the rectangle, the weight of the sample's own label increases.
func cutmix(lambda float64, d *draws, size int) mixing {
	side := int(float64(size) * math.Sqrt(1-lambda))
	span := func() (lo, hi int) {
		middle := d.below(size)
		return max(middle-side/2, 0), min(middle+(side+1)/2, size)
	}
	top, bottom := span()
	left, right := span()
	box := rect{left, top, right - left, bottom - top}
	return mixing{cut: true, box: box, lambda: float32(size*size-box.w*box.h) / float32(size*size)}
}

// apply mixes partner into pix. Both are (size, size, 3).
func (m mixing) apply(pix, partner []byte, size int) {
	if m.cut {
		for y := m.box.y; y < m.box.y+m.box.h; y++ {
			at := 3 * (y*size + m.box.x)
			copy(pix[at:at+3*m.box.w], partner[at:])
		}
		return
	}
	own, other := uint32(m.own), uint32(unmixedWeight-m.own)
	partner = partner[:len(pix)]
	for i, v := range pix {
		pix[i] = byte((uint32(v)*own + uint32(partner[i])*other + unmixedWeight/2) / unmixedWeight)
	}
}
