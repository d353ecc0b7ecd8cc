package parts

import (
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
)

// DecodeOptions returns the pixel limit and the EXIF orientation setting of image decoding.
func DecodeOptions(d config.Data) images.DecodeOptions {
	return images.DecodeOptions{MaxPixels: d.MaxPixels, Orient: d.EXIFOrientation}
}

// Normalization returns the configured normalization if there is one, otherwise the normalization of the data set.
func Normalization(d config.Data, own data.Normalization) data.Normalization {
	for i := range 3 {
		if len(d.Mean) == 3 {
			own.Mean[i] = float32(d.Mean[i])
		}
		if len(d.Std) == 3 {
			own.Std[i] = float32(d.Std[i])
		}
	}
	return own
}

// Transforms returns the augmentation for training and the transform for evaluation.
func Transforms(d config.Data) (train, eval data.Transform) {
	eval = data.Transform{Crop: data.CentreCrop, Size: d.ImageSize}
	train = eval
	switch {
	case d.RandomResizedCrop:
		train = data.Transform{Crop: data.ResizedCrop, Size: d.ImageSize, Flip: d.Flip}
		eval.Resize = d.ImageSize * 256 / 224 // as in torchvision
	case d.CropPadding > 0 || d.Flip:
		train = data.Transform{Crop: data.PadCrop, Size: d.ImageSize, Pad: d.CropPadding, Flip: d.Flip}
	}
	return train, eval
}
