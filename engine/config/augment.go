package config

import "fmt"

// Augment is the [augment] table.
type Augment struct {
	Mixup         float64 // alpha; 0 = off
	Cutmix        float64 // alpha; 0 = off
	MixProb       float64
	MixSwitchProb float64
	MixMode       string // batch, pair, elem
	MixOffEpoch   int    // 0 = never

	RandAugmentOps       int // 0 = off
	RandAugmentMagnitude float64
	RandAugmentStd       float64

	Brightness, Contrast, Saturation float64
	Hue                              float64 // turns

	EraseProb  float64
	EraseMode  string // const, rand, pixel
	EraseCount int
}

// Keys lists the table's keys.
func (a *Augment) Keys() []Key {
	mixes := Any(IsNot("augment.mixup", 0.0), IsNot("augment.cutmix", 0.0))
	return each(Key.Learnt, []Key{
		Float(&a.Mixup, "mixup", 0).AtMost(1000).
			Doc("Mixup: an image and its label get the weight lambda, the partner 1 - lambda. lambda is drawn from Beta(alpha, alpha); this key is alpha. 0: off. 0.2 is usual for ResNets."),
		Float(&a.Cutmix, "cutmix", 0).AtMost(1000).
			Doc("Cutmix: alpha of the distribution for the area of the rectangle that the partner's image replaces. 0: off. 1 is usual."),
		Float(&a.MixProb, "mix_prob", 1).AtMost(1).Only(mixes).
			Doc("Probability that a batch, pair or sample (according to `mix_mode`) is mixed."),
		Float(&a.MixSwitchProb, "mix_switch_prob", 0.5).AtMost(1).Only(IsNot("augment.mixup", 0.0), IsNot("augment.cutmix", 0.0)).
			Doc("Probability of cutmix instead of mixup."),
		Choice(&a.MixMode, "mix_mode", "batch", "batch", "pair", "elem").Only(mixes).
			Doc("Samples that share one lambda and rectangle: `batch`: all samples of an optimizer step; `pair`: the two of a pair; `elem`: each sample."),
		Int(&a.MixOffEpoch, "mix_off_epoch", 0).Unit("epochs").Only(mixes).
			Doc("Mixing ends before this epoch, counted from 0. 0: it never ends."),
		Int(&a.RandAugmentOps, "randaugment_ops", 0).Unit("operations").AtMost(64).
			Doc("RandAugment: number of operations on each training image, out of torchvision's fourteen. 0: off. 2 is usual."),
		Float(&a.RandAugmentMagnitude, "randaugment_magnitude", 9).AtMost(30).Only(IsNot("augment.randaugment_ops", 0)).
			Doc("Strength of the operations, in torchvision's bins 0 to 30."),
		Float(&a.RandAugmentStd, "randaugment_std", 0).AtMost(30).Only(IsNot("augment.randaugment_ops", 0)).
			Doc("Standard deviation of the magnitude, drawn for each operation."),
		Float(&a.Brightness, "brightness", 0).AtMost(100).
			Doc("Color jitter: factors uniform in max(0, 1 - x) to 1 + x, as torchvision's `ColorJitter`, in random order with `contrast`, `saturation` and `hue`. 0: off."),
		Float(&a.Contrast, "contrast", 0).AtMost(100).
			Doc("The same for the contrast."),
		Float(&a.Saturation, "saturation", 0).AtMost(100).
			Doc("The same for the saturation."),
		Float(&a.Hue, "hue", 0).Unit("turns").AtMost(0.5).
			Doc("Maximum rotation of the hue in either direction."),
		Float(&a.EraseProb, "erase_prob", 0).AtMost(1).
			Doc("Random erasing: probability that rectangles of 2 to 33 % of a training image are hidden. 0: off. 0.25 is usual."),
		Choice(&a.EraseMode, "erase_mode", "const", "const", "rand", "pixel").Only(IsNot("augment.erase_prob", 0.0)).
			Doc("Content of the erased rectangles: `const`: the data's mean colour; `rand`: one random colour; `pixel`: random pixels."),
		Int(&a.EraseCount, "erase_count", 1).Unit("rectangles").AtLeast(1).AtMost(1024).Only(IsNot("augment.erase_prob", 0.0)).
			Doc("Maximum number of rectangles to erase in an image; they divide the area."),
	})
}

// mixedPairs requires micro-batches with an even number of samples, so that they contain whole pairs.
func mixedPairs(key string, alpha func(*Augment) float64) rule {
	return rule{key: key, with: []string{"data.batch_size", "train.grad_accumulation"}, check: func(c *Config) *Fault {
		part := c.Data.BatchSize / c.Train.GradAccumulation
		return unless(alpha(&c.Augment) == 0 || part%2 == 0, "samples are mixed in pairs",
			fmt.Sprintf("micro-batches of %d samples", part), "data.batch_size / train.grad_accumulation even, or 0")
	}}
}
