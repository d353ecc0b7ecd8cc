// Package data brings labelled images from where they are stored into the batches that training and evaluation
// consume.
//
// # From a file to a batch
//
//	Dataset   what there is: a number of samples, class names, labels, and Readers that decode one sample at a time
//	Transform how a sample becomes a fixed-size image: padded crop, resized crop, centre crop, flip; then Augment
//	Mix       two samples become one with two labels
//	Loader    which samples make the batch of a step, read ahead by workers into reused buffers
//
// Synthetic lives here; engine/data/cifar and engine/data/images hold the other data sets. Limited takes a
// class-balanced part of a data set, Cached keeps small decoded images in memory; both wrap any Dataset:
//
//	ds := data.Cached(data.Limited(folder, 10_000), 1<<30)
//	loader, err := data.NewLoader(data.Options{
//		Dataset: ds, Transform: data.Transform{Crop: data.PadCrop, Size: 32, Pad: 4, Flip: true},
//		Seed: 1, BatchSize: 256,
//	})
//	defer loader.Close()
//	for {
//		batch, err := loader.Next(ctx) // batch.Images: uint8 (N, H, W, 3)
//		...
//		batch.Release()
//	}
//
// # What is promised
//
// The samples of a batch and their augmentation are functions of (seed, epoch, sample index) alone: not of the number
// of workers, not of the share of the batch that this rank reads, not of where training was resumed, not of what is
// cached. Random numbers come from a counter-based generator (Philox 4x32 with 10 rounds, Salmon et al. 2011) whose
// counter holds epoch, index and purpose. The order of an epoch is a Fisher-Yates shuffle driven by that generator.
//
// Two machines that decode the same JPEG with different libraries (libturbojpeg here, image/jpeg there) may see pixels
// that differ by a few steps of 255; package jpeg tells which one is in use.
//
// Images leave this package as bytes. Mean and standard deviation are applied by the device; Normalization holds the
// usual values.
//
// # Errors
//
// What is wrong with the data themselves (missing, corrupt, refused, not to be had) is a *Fault, which names the file
// or the sample. The program ends with exit code 3 on one. Every other error is a wrong option or a cancelled context.
package data
