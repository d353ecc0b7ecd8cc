package config

import "fmt"

// Augment contains the keys of table [augment].
type Augment struct {
	Mixup         float64 // parameter alpha; 0: off
	Cutmix        float64 // parameter alpha; 0: off
	MixProb       float64
	MixSwitchProb float64
	MixMode       string // "batch", "pair" or "elem"
	MixOffEpoch   int    // first epoch without mixing, from 0; 0: mix in all epochs

	RandAugmentOps       int // operations per image; 0: off
	RandAugmentMagnitude float64
	RandAugmentStd       float64

	Brightness, Contrast, Saturation float64
	Hue                              float64 // maximum rotation of the hue, turns

	EraseProb  float64
	EraseMode  string // "const", "rand" or "pixel"
	EraseCount int
}

// Keys implements [Options].
func (a *Augment) Keys() []Key {
	mixes := Any(IsNot("augment.mixup", 0.0), IsNot("augment.cutmix", 0.0))
	return each(Key.Learnt, []Key{
		Float(&a.Mixup, "mixup", 0).AtMost(1000).
			Doc("Mixup: alpha of the distribution Beta(alpha, alpha), from which the weight lambda is drawn. An image and its label get the weight lambda, and the partner gets 1 - lambda. 0: off. Usual for ResNets: 0.2."),
		Float(&a.Cutmix, "cutmix", 0).AtMost(1000).
			Doc("Cutmix: alpha of the distribution Beta(alpha, alpha), from which the rectangle's area is drawn. The partner's image fills the rectangle. 0: off. Usual: 1."),
		Float(&a.MixProb, "mix_prob", 1).AtMost(1).Only(mixes).
			Doc("Probability of mixing a batch, a pair or a sample, depending on `mix_mode`."),
		Float(&a.MixSwitchProb, "mix_switch_prob", 0.5).AtMost(1).Only(IsNot("augment.mixup", 0.0),
			IsNot("augment.cutmix", 0.0)).
			Doc("Probability of cutmix instead of mixup."),
		Choice(&a.MixMode, "mix_mode", "batch", "batch", "pair", "elem").Only(mixes).
			Doc("Which samples share one lambda and rectangle. `batch`: all samples of an optimizer step. `pair`: the two samples of a pair. `elem`: each sample has its own."),
		Int(&a.MixOffEpoch, "mix_off_epoch", 0).Unit("epochs").SilentAtEnd("all its epochs mix").Only(mixes).
			Doc("First epoch without mixing, counted from 0. 0: every epoch mixes."),
		Int(&a.RandAugmentOps, "randaugment_ops", 0).Unit("operations").AtMost(64).
			Doc("RandAugment: number of operations on each training image, from torchvision's fourteen. 0: off. Usual: 2."),
		Float(&a.RandAugmentMagnitude, "randaugment_magnitude", 9).AtMost(30).Only(IsNot("augment.randaugment_ops", 0)).
			Doc("Strength of the operations, on torchvision's scale of 0 to 30."),
		Float(&a.RandAugmentStd, "randaugment_std", 0).AtMost(30).Only(IsNot("augment.randaugment_ops", 0)).
			Doc("Standard deviation of the strength. Each operation draws its own strength."),
		Float(&a.Brightness, "brightness", 0).AtMost(100).
			Doc("Color jitter: the brightness factor is uniform between max(0, 1 - x) and 1 + x, as in torchvision's `ColorJitter`. `brightness`, `contrast`, `saturation` and `hue` apply in random order. 0: off."),
		Float(&a.Contrast, "contrast", 0).AtMost(100).
			Doc("Color jitter: range of the contrast factor, as for `brightness`. 0: off."),
		Float(&a.Saturation, "saturation", 0).AtMost(100).
			Doc("Color jitter: range of the saturation factor, as for `brightness`. 0: off."),
		Float(&a.Hue, "hue", 0).Unit("turns").AtMost(0.5).
			Doc("Color jitter: maximum rotation of the hue, in either direction. 0: off."),
		Float(&a.EraseProb, "erase_prob", 0).AtMost(1).
			Doc("Random erasing: probability of erasing rectangles that cover 2 to 33 % of a training image. 0: off. Usual: 0.25."),
		Choice(&a.EraseMode, "erase_mode", "const", "const", "rand", "pixel").Only(IsNot("augment.erase_prob", 0.0)).
			Doc("Content of the erased rectangles. `const`: the mean colour of the data. `rand`: one random colour. `pixel`: random pixels."),
		Int(&a.EraseCount, "erase_count", 1).Unit("rectangles").AtLeast(1).AtMost(1024).Only(
			IsNot("augment.erase_prob", 0.0)).
			Doc("Maximum number of rectangles per image. The rectangles of an image share the erased area."),
	})
}

// mixedPairs returns a rule: if samples are mixed in pairs, a micro-batch must have an even number of samples.
func mixedPairs(key string, alpha func(*Augment) float64) rule {
	return rule{key: key, with: []string{"data.batch_size", "train.grad_accumulation"}, check: func(c *Config) *Fault {
		part := c.Data.BatchSize / c.Train.MicroBatches()
		return unless(alpha(&c.Augment) == 0 || part%2 == 0, "samples are mixed in pairs",
			fmt.Sprintf("micro-batches of %d samples", part), "data.batch_size / train.grad_accumulation even, or 0")
	}}
}
