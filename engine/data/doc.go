// Package data turns stored samples into the batches that training and evaluation consume.
//
// # From a file to a batch
//
//	Dataset   labelled images: their number, class names, labels, and Readers that decode one image at a time
//	Transform makes a fixed-size image of a stored one: padded crop, resized crop, centre crop, flip; then Augment
//	Mix       combines two images into one with two labels
//	Images    a Dataset with its Transform and Mix as Samples of a Loader
//	Samples   a fixed number of samples with the same fields, such as pixels and label; each worker has a Source of them
//	Loader    chooses the samples of each step's batch, and reads them ahead with workers into reused buffers
//
// Only Images and what is above it know images. A Loader copies no field and interprets none: other kinds of samples
// implement Samples.
//
// Synthetic is part of this package; engine/data/cifar, engine/data/images and engine/data/webdataset contain the other
// data sets. Limited takes a class-balanced part of a data set, Cached keeps small decoded images in memory; both wrap
// any Dataset:
//
//	ds := data.Cached(data.Limited(folder, 10_000), 1<<30)
//	loader, err := data.NewLoader(data.Options{
//		Samples: data.Images{Dataset: ds, Transform: data.Transform{Crop: data.PadCrop, Size: 32, Pad: 4, Flip: true}},
//		Seed: 1, BatchSize: 256,
//	})
//	defer loader.Close()
//	for {
//		batch, err := loader.Next(ctx)
//		images := data.Values[uint8](batch, data.Pixels) // (N, 32, 32, 3)
//		...
//		batch.Release()
//	}
//
// # Reproducibility
//
// The samples of a batch and their augmentation are functions of (seed, epoch, sample index) only. They do not depend
// on the number of workers, on this rank's share, on where training was resumed, or on caches. Random numbers come from
// a counter-based generator (Philox 4x32 with 10 rounds, Salmon et al. 2011) whose counter contains epoch, index and
// purpose. The order of an epoch is a Fisher-Yates shuffle with this generator.
//
// Two machines that decode the same JPEG with different libraries (libturbojpeg and image/jpeg) may get pixels that
// differ by a few of 255 steps. Package jpeg reports which library is in use.
//
// Images are bytes in this package. The device applies mean and standard deviation; Normalization contains the usual
// values.
//
// # Errors
//
// A fault of the data (missing, corrupt, refused or unavailable) is a *Fault, which names the file or the sample; the
// program then exits with code 3. Every other error is an invalid option or a cancelled context.
package data
