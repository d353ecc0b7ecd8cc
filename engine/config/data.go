package config

// Data is the [data] table.
type Data struct {
	Dataset  string
	Path     string // "" if the data set needs none
	Fallback string // "" or a synthetic data set

	FallbackEpochs int // maximum; 0 = as many as Train.Epochs

	Download    string // auto, never
	CacheDir    string // "" = the user's cache folder
	ValFraction float64
	BatchSize   int // samples of one optimizer step over all ranks (global batch)
	ImageSize   int // pixels, height = width
	NumSamples  int // 0 = all
	NumClasses  int // synthetic data only; 0 = the default of the data set
	MaxPixels   int // of an encoded image
	Workers     int // 0 = chosen by the loader

	CropPadding       int // pixels; 0 = no random crop
	RandomResizedCrop bool
	Flip              bool
	Mean              []float64 // per channel, of values in 0…1; empty = the data set's own
	Std               []float64

	DataInput

	// Options contains the keys that only this data set has, in the type that its package documents; nil if it has
	// none.
	Options Options
	// FallbackOptions contains the options of the data set that Fallback names, with default values; nil without a
	// fallback.
	FallbackOptions Options

	traits DataTraits // of the data set
}

// Keys lists the keys that every data set has.
func (d *Data) Keys() []Key {
	return append([]Key{
		String(&d.Dataset, "dataset", "synthetic_image").Learnt().
			Doc("The data set, see the list of data sets below."),
		String(&d.Path, "path", "").Operational().
			Doc("Location of the data. `images` (required): a folder of class folders, or a `.tar`, `.tar.gz` or `.tar.zst` of one, with `train/` and `val/` or `test/` inside, else split by `val_fraction`; or the official archives of ImageNet. `webdataset` (required): shards as `train-{000000..000146}.tar`, a folder of them, a `.txt` that lists them, or several joined by `::`. `cifar10`, `cifar100`: the official binary archive or the folder it unpacks to; empty: `cache_dir`, downloaded if missing. Synthetic data: empty."),
		String(&d.Fallback, "fallback", "").Operational().OverriddenBy("data.path").
			Doc("Synthetic data to train on if the download of the data set fails, with a warning at the start and in every summary. Empty: a failed download is an error (exit 3). A path that does not exist and damaged data are always errors."),
		Int(&d.FallbackEpochs, "fallback_epochs", 2).Unit("epochs").Operational().Only(IsNot("data.fallback", "")).OverriddenBy("train.steps").
			Doc("A run on the `fallback` ends after this many epochs if `train.epochs` is larger, and its schedule ends there too. 0: `train.epochs`."),
		Choice(&d.Download, "download", "auto", "auto", "never").Operational().OverriddenBy("data.path").
			Doc("`auto`: a known data set that is missing is downloaded, checked (SHA-256) and kept. `never`: a missing data set is an error."),
		String(&d.CacheDir, "cache_dir", "").Operational().
			Doc("Folder of downloaded and converted data. Empty: `hetero-train` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."),
		Float(&d.ValFraction, "val_fraction", 0.1).AtMost(0.9).Learnt().
			Doc("Fraction of the samples kept for evaluation if the data set has no evaluation part."),
		Int(&d.BatchSize, "batch_size", 128).Unit("samples").AtLeast(1).AtMost(1 << 24).Learnt().
			Doc("GLOBAL batch: samples of one optimizer step over all ranks and micro-batches. Its size does not depend on how it is divided among ranks."),
		Int(&d.ImageSize, "image_size", 32).Unit("pixels").AtLeast(1).AtMost(4096).Learnt().
			Doc("Height and width of the images that enter the network."),
		Int(&d.NumSamples, "num_samples", 0).Unit("samples").Learnt().
			Doc("Number of training samples to use, balanced over the classes; evaluation uses at most as many. 0: all; for synthetic data its default number."),
		Int(&d.NumClasses, "num_classes", 0).Unit("classes").AtMost(1 << 16).Learnt().
			Doc("Classes of synthetic data. 0: 10, or the number of classes of the data set that it replaces."),
		Int(&d.MaxPixels, "max_pixels", 64<<20).Unit("pixels").AtLeast(1).Learnt().
			Doc("Encoded images with more pixels are refused before they are decoded (decompression bombs)."),
		Int(&d.Workers, "workers", 0).Unit("goroutines").AtMost(1024).Operational().
			Doc("Goroutines that decode and augment ahead of the computation. 0: chosen by the CPU quota."),
		Int(&d.CropPadding, "crop_padding", 0).Unit("pixels").AtMost(4096).Learnt().
			Doc("Random crop: training images are padded with this many black pixels on each side, then a window of `image_size` is cut out. 0: no random crop."),
		Bool(&d.RandomResizedCrop, "random_resized_crop", false).Learnt().
			Doc("Training images: a random window of 8 to 100 % of the area and an aspect ratio of 3:4 to 4:3, scaled to `image_size`."),
		Bool(&d.Flip, "flip", false).Learnt().
			Doc("Mirrors training images left to right with probability 1/2."),
		Floats(&d.Mean, "mean").Length(3).AtMost(1).Learnt().
			Doc("Subtracted from the red, green and blue values (0…1). Empty: the data set's own."),
		Floats(&d.Std, "std").Length(3).Above(0).Learnt().
			Doc("Divides the red, green and blue values after that. Empty: the data set's own."),
	}, d.DataInput.Keys()...)
}
