package data

import (
	"errors"
	"fmt"
	"math"
)

// MixMode is what shares one random choice of how samples are mixed.
type MixMode uint8

// timm's modes.
const (
	MixBatch   MixMode = iota // all samples of an optimizer step
	MixPair                   // two partners
	MixElement                // each sample has its own
)

// Mix mixes training samples with a partner, images and labels: mixup (H. Zhang et al., 2017) takes a weighted mean of both,
// cutmix (S. Yun et al., 2019) puts a rectangle of the partner in place. Choices are distributed as timm's.
//
// Partners are neighbours in the shuffled order of the epoch, positions 2k and 2k+1 of a batch, so that few pairs lie on two
// ranks. (timm pairs the first with the last: in a shuffled order any fixed pairing is as good.) Images are mixed after
// all other augmentation, in bytes.
type Mix struct {
	MixupAlpha  float64 // of Beta(a, a), the distribution of the share; 0 means no mixup
	CutmixAlpha float64 // the same of cutmix
	Probability float64 // that a choice mixes at all
	Switch      float64 // probability of cutmix where both are on
	Mode        MixMode
	OffEpoch    int // first epoch without mixing; 0 means never
}

// Enabled says whether samples get second labels.
func (m Mix) Enabled() bool { return m.MixupAlpha > 0 || m.CutmixAlpha > 0 }

// check reports what cannot be.
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
		errs = append(errs, fmt.Errorf("mixing: it ends at epoch %d, want 0 or more", m.OffEpoch))
	}
	return errors.Join(errs...)
}

// wholeShare is the weight of an image that is not mixed.
const wholeShare = 1 << 16

// mixing says how much of a sample stays: the weight of its pixels, and its label's share.
type mixing struct {
	cut   bool
	box   rect // of the partner, where cut is set
	own   int  // in 1/wholeShare, where cut is not set
	share float32
}

var unmixed = mixing{own: wholeShare, share: 1}

func (m mixing) none() bool { return m.share == 1 }

// draw makes the choice for a position of the epoch's order, a function of (seed, epoch, position) and of the number of
// samples of a step.
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
	own := int(math.RoundToEven(d.beta(m.MixupAlpha) * wholeShare))
	return mixing{own: own, share: float32(own) / wholeShare}
}

// cutmix draws a rectangle of the area 1-share around a uniform middle; what the border cuts off goes back to the share.
func cutmix(share float64, d *draws, size int) mixing {
	side := int(float64(size) * math.Sqrt(1-share))
	span := func() (lo, hi int) {
		middle := d.below(size)
		return max(middle-side/2, 0), min(middle+(side+1)/2, size)
	}
	top, bottom := span()
	left, right := span()
	box := rect{left, top, right - left, bottom - top}
	return mixing{cut: true, box: box, share: float32(size*size-box.w*box.h) / float32(size*size)}
}

// apply mixes partner into pix, both (size, size, 3).
func (m mixing) apply(pix, partner []byte, size int) {
	if m.cut {
		for y := m.box.y; y < m.box.y+m.box.h; y++ {
			at := 3 * (y*size + m.box.x)
			copy(pix[at:at+3*m.box.w], partner[at:])
		}
		return
	}
	own, other := uint32(m.own), uint32(wholeShare-m.own)
	partner = partner[:len(pix)]
	for i, v := range pix {
		pix[i] = byte((uint32(v)*own + uint32(partner[i])*other + wholeShare/2) / wholeShare)
	}
}
