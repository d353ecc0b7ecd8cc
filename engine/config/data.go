package config

// Data contains the keys of table [data].
type Data struct {
	Dataset  string
	Path     string // "" if the data set needs no path
	Fallback string // name of a synthetic data set, or ""

	FallbackEpochs int // maximum number of epochs on fallback data; 0: Train.Epochs

	Download    string // "auto" or "never"
	CacheDir    string // "": folder hetero-train in the user's cache folder
	ValFraction float64
	BatchSize   int  // global batch: samples of one optimizer step over all ranks
	ImageSize   int  // pixels, height = width
	DropLast    bool // leave out the incomplete last batch of an epoch
	NumSamples  int  // 0: all samples, or the default of a synthetic data set
	NumClasses  int  // for synthetic data; 0: default of the data set
	MaxPixels   int  // maximum size of an encoded image, pixels
	Workers     int  // 0: the loader chooses the number

	CropPadding       int // pixels; 0: no random crop
	RandomResizedCrop bool
	Flip              bool
	Mean              []float64 // one value per channel, for pixel values in [0, 1]; empty: values of the data set
	Std               []float64

	DataInput

	// Options contains the keys that only this data set has. Its type is documented in the package of the data set. It
	// is nil if there are no such keys.
	Options Options
	// FallbackOptions contains the options, with default values, of the data set that Fallback names. It is nil without
	// a fallback.
	FallbackOptions Options

	Samples Samples // type of the samples; not a key

	// If All is true, Path is opened for evaluation only: the evaluation part if the data set has one, otherwise all
	// samples. All is not a key.
	All bool

	traits      DataTraits // traits of the data set
	withValPath []string   // data sets of the catalog that read ValPath
}

// Computed reports whether the samples are generated from the seed, so that opening the data set reads no files.
func (d *Data) Computed() bool { return d.traits.Computed }

// Keys returns the keys that every data set has.
func (d *Data) Keys() []Key {
	return append([]Key{
		String(&d.Dataset, "dataset", "synthetic_image").Learnt().
			Doc("The data set. See the list of data sets below."),
		String(&d.Path, "path", "").PathOrObjects().Operational().
			Doc("Location of the data. `images` (required): a folder with one folder per class, or a `.tar`, `.tar.gz` or `.tar.zst` of such a folder; or the official archives of ImageNet. `webdataset` (required): shards, given as `train-{000000..000146}.tar`, as a folder, as a `.txt` list, or as several of these joined by `::`. `cifar10`, `cifar100`: the official binary archive or its unpacked folder; empty: `cache_dir`, with a download if needed. `text` (required): a token file, a pattern such as `shards/train-*.bin`, or a folder of token files. `labelled_text` (required): a file, or a folder of files. `synthetic_image`, `synthetic_text`: empty. Names of files and folders determine the parts: `train` or `training`; `val`, `valid`, `validation` or `dev`; `test`, `testing` or `eval` (whole words, in any case). Without an evaluation part, `val_fraction` splits the samples. `images`, `webdataset`, `huggingface`, `labelled_text`: also objects of S3, `s3://BUCKET/KEY` in place of a path (docs/object-storage.md)."),
		String(&d.Fallback, "fallback", "").Operational().OverriddenBy("data.path").
			Doc("Synthetic data set to use if the download of `dataset` fails. The run then warns at its start and in every summary. Empty: a failed download is an error (exit 3). A missing path and damaged data are always errors."),
		Int(&d.FallbackEpochs, "fallback_epochs", 2).Unit("epochs").Operational().Only(IsNot("data.fallback", "")).
			OverriddenBy("train.steps").
			Doc("Maximum number of epochs on the `fallback` data. The learning rate schedule ends there too. 0: `train.epochs`."),
		Choice(&d.Download, "download", "auto", "auto", "never").Operational().OverriddenBy("data.path").
			Doc("`auto`: download a missing data set, check its SHA-256 and keep it. `never`: a missing data set is an error."),
		String(&d.CacheDir, "cache_dir", "").Path().Operational().
			Doc("Folder for downloaded and converted data, and for the lists of large folders. Empty: `hetero-train` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."),
		Float(&d.ValFraction, "val_fraction", 0.1).AtMost(0.9).Learnt().
			Doc("Fraction of the samples to hold out for evaluation if the data set has no evaluation part."),
		Int(&d.BatchSize, "batch_size", 128).Unit("samples").AtLeast(1).AtMost(1 << 24).Learnt().
			Doc("GLOBAL batch: samples per optimizer step, over all ranks and micro-batches."),
		Bool(&d.DropLast, "drop_last", true).Learnt().
			Doc("`true`: the samples at the end of an epoch that do not fill a global batch are left out of this epoch; each epoch leaves out others. `false`, as in PyTorch's DataLoader: these samples form a smaller last step of the epoch, whose loss is the mean over its samples. Evaluations always use all samples."),
		Int(&d.ImageSize, "image_size", 32).Unit("pixels").AtLeast(1).AtMost(4096).Learnt().
			Doc("Height and width of the network's input images."),
		Int(&d.NumSamples, "num_samples", 0).Unit("samples").Learnt().
			Doc("Number of training samples to use, balanced over the classes. Evaluation uses at most the same number. 0: all; 50,000 for `synthetic_image`, 10,000 for `synthetic_text`."),
		Int(&d.NumClasses, "num_classes", 0).Unit("classes").AtMost(1 << 16).Learnt().
			Doc("Number of classes of synthetic data. 0 means 10, or, if the synthetic data are the fallback, the number of classes of the data set that they replace."),
		Int(&d.MaxPixels, "max_pixels", 64<<20).Unit("pixels").AtLeast(1).Learnt().
			Doc("Maximum number of pixels of an image. Larger images are refused before they are decoded, as a protection against decompression bombs."),
		Int(&d.Workers, "workers", 0).Unit("goroutines").AtMost(1024).Operational().
			Doc("Number of goroutines that decode and augment the next batches. 0: the program chooses the number from the CPU quota."),
		Int(&d.CropPadding, "crop_padding", 0).Unit("pixels").AtMost(4096).Learnt().
			Doc("Random crop of training images: the image is padded with this many black pixels on each side, and a random window of `image_size` is cut out. 0: no random crop."),
		Bool(&d.RandomResizedCrop, "random_resized_crop", false).Learnt().
			Doc("Random resized crop of training images: a random window with 8 to 100 % of the area and an aspect ratio of 3:4 to 4:3 is scaled to `image_size`. Evaluation then scales the shorter side to 256/224 of `image_size` and takes the centre."),
		Bool(&d.Flip, "flip", false).Learnt().
			Doc("Mirrors a training image left to right with probability 1/2."),
		Floats(&d.Mean, "mean").Length(3).AtMost(1).Learnt().
			Doc("Mean of the red, green and blue values (0…1), which normalisation subtracts. Empty: the values of the data set."),
		Floats(&d.Std, "std").Length(3).Above(0).Learnt().
			Doc("Standard deviation of the red, green and blue values (0…1), by which normalisation divides. Empty: the values of the data set."),
	}, d.DataInput.Keys()...)
}
