// Package data converts stored samples to batches for training and evaluation.
//
// # From a file to a batch
//
//	Dataset   labelled images: their number, class names, labels, and Readers that decode one image at a time
//	Transform makes an image of fixed size: padded crop, resized crop, centre crop, flip; then Augment
//	Mix       combines two images into one with two labels
//	Images    a Dataset with its Transform and Mix, as Samples for a Loader
//	Samples   a fixed number of samples with the same fields, such as pixels and label; each worker reads them from its own Source
//	Ahead     fetches the stored bytes of announced samples in advance, to hide the latency of storage; see Fetcher
//	Loader    chooses the samples of each batch and prefetches them with workers into reused buffers
//
// Only Images and the types above it process images. A Loader does not interpret fields, so it can load any kind of
// sample that implements Samples.
//
// Synthetic is part of this package. The packages engine/data/cifar, engine/data/images and engine/data/webdataset
// contain the other data sets of images. Limited selects a class-balanced part of a data set. Cached keeps small
// decoded images in memory. Both wrap any Dataset:
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
// on the number of workers, on the shares of the ranks, on the step at which a run was resumed, or on caches.
//
// Random numbers come from a counter-based generator (Philox 4x32 with 10 rounds, Salmon et al. 2011). Its counter
// contains the epoch, the index and the purpose. The order of an epoch is a Fisher-Yates shuffle with this generator.
//
// Pixels of a JPEG do not depend on the decoder in use: libturbojpeg or Go; see package jpeg.
//
// Pixels in this package are bytes. The device subtracts the mean and divides by the standard deviation.
// Normalization contains the usual values of both.
//
// # Errors
//
// If data is missing, corrupt, refused or unavailable, the error is a *Fault, which names the file or the sample. The
// program then exits with code 3. Every other error is an invalid option or a cancelled context.
package data
