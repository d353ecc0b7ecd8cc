package replica

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/task/language"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const (
	testBatch    = 6
	testSize     = 8
	testClasses  = 3
	phraseLength = 6
)

func openReference(t *testing.T) device.Device {
	t.Helper()
	dev, err := reference.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func testOptions() Options {
	return Options{
		Task: images.Classify{Model: simplecnn.Build(simplecnn.Options{Channels: []int{3, 4}, Dropout: 0.2}),
			Classes: testClasses, Size: testSize,
			Mean: [3]float32{0.5, 0.5, 0.5}, Std: [3]float32{0.25, 0.25, 0.25}, LabelSmoothing: 0.1},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "sgd", Momentum: 0.9, Nesterov: true, WeightDecay: 1e-3},
	}
}

func languageOptions(dropout float64) Options {
	size := gpt2.Size{Vocabulary: 11, Positions: phraseLength, Layers: 2, Heads: 2, Channels: 8}
	return Options{
		Task: language.Predict{
			Model: gpt2.Build(size, gpt2.Options{EmbeddingDropout: dropout, AttentionDropout: dropout,
				ResidualDropout: dropout}), Length: phraseLength},
		Compute: tensor.F32, BatchSize: testBatch, Accumulation: 1, Seed: 5,
		Optimizer: optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05, ClipNorm: 0.5},
	}
}

// mix gives the training samples of o a second label.
func mix(o *Options) {
	task := o.Task.(images.Classify)
	task.Mixed = true
	o.Task = task
}

func testLoader(t *testing.T, o Options) *data.Loader {
	t.Helper()
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 9, Train: 26, Classes: testClasses, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	samples := data.Images{
		Dataset: set.Train, Transform: data.Transform{Crop: data.PadCrop, Size: testSize, Pad: 1, Flip: true}}
	if o.Task.(images.Classify).Mixed {
		samples.Mix = data.Mix{MixupAlpha: 0.5, CutmixAlpha: 1, Probability: 0.9, Switch: 0.5, Mode: data.MixPair}
	}
	l, err := data.NewLoader(data.Options{Seed: o.Seed, BatchSize: o.BatchSize, Accumulation: o.Accumulation,
		Workers: 1, Samples: samples})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
