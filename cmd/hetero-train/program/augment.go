package program

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// augmentation is what changes single training images.
func augmentation(a config.Augment, norm data.Normalization) data.Augment {
	return data.Augment{
		Rand:   data.RandAugment{Ops: a.RandAugmentOps, Magnitude: a.RandAugmentMagnitude, Std: a.RandAugmentStd},
		Jitter: data.ColorJitter{Brightness: a.Brightness, Contrast: a.Contrast, Saturation: a.Saturation, Hue: a.Hue},
		Erase: data.RandomErase{Probability: a.EraseProb, Mode: data.EraseMode(slices.Index([]string{"const", "rand", "pixel"}, a.EraseMode)),
			Count: a.EraseCount, Normalization: norm},
	}
}

// mixing is how training samples are mixed with one another.
func mixing(a config.Augment) data.Mix {
	return data.Mix{MixupAlpha: a.Mixup, CutmixAlpha: a.Cutmix, Probability: a.MixProb, Switch: a.MixSwitchProb,
		Mode: data.MixMode(slices.Index([]string{"batch", "pair", "elem"}, a.MixMode)), OffEpoch: a.MixOffEpoch}
}
