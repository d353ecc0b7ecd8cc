package parts

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// Augmentation returns the configured augmentation of single training images.
func Augmentation(a config.Augment, norm data.Normalization) data.Augment {
	return data.Augment{
		Rand:   data.RandAugment{Ops: a.RandAugmentOps, Magnitude: a.RandAugmentMagnitude, Std: a.RandAugmentStd},
		Jitter: data.ColorJitter{Brightness: a.Brightness, Contrast: a.Contrast, Saturation: a.Saturation, Hue: a.Hue},
		Erase: data.RandomErase{Probability: a.EraseProb,
			Mode:  data.EraseMode(slices.Index([]string{"const", "rand", "pixel"}, a.EraseMode)),
			Count: a.EraseCount, Normalization: norm},
	}
}

// Mixing returns the options of mixup and cutmix, which combine pairs of training samples.
func Mixing(a config.Augment) data.Mix {
	return data.Mix{MixupAlpha: a.Mixup, CutmixAlpha: a.Cutmix, Probability: a.MixProb, Switch: a.MixSwitchProb,
		Mode: data.MixMode(slices.Index([]string{"batch", "pair", "elem"}, a.MixMode)), OffEpoch: a.MixOffEpoch}
}

// TransformTexts describes the transforms of training images, in the order in which the loader applies them.
func TransformTexts(c *config.Config) (texts []string) {
	add := func(on bool, format string, args ...any) {
		if on {
			texts = append(texts, fmt.Sprintf(format, args...))
		}
	}
	d, a := c.Data, c.Augment
	add(d.RandomResizedCrop, "random resized crop")
	add(!d.RandomResizedCrop && d.CropPadding > 0, "random crop (padding %d)", d.CropPadding)
	add(d.Flip, "flip")
	add(a.RandAugmentOps > 0, "RandAugment (%d ops, magnitude %g)", a.RandAugmentOps, a.RandAugmentMagnitude)
	add(a.Brightness > 0 || a.Contrast > 0 || a.Saturation > 0 || a.Hue > 0, "color jitter")
	add(a.EraseProb > 0, "random erasing (%g)", a.EraseProb)
	add(a.Mixup > 0, "mixup (alpha %g)", a.Mixup)
	add(a.Cutmix > 0, "cutmix (alpha %g)", a.Cutmix)
	add(len(texts) == 0, "no augmentation")
	return texts
}
