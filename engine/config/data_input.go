package config

// DataInput contains the keys of the [data] table that select samples and describe their files.
type DataInput struct {
	ValPath         string // webdataset: shards of the evaluation part; "": found by name or split off
	ClassNames      string // file of class names; "" if the data contain them
	MaxClasses      int    // 0 = all
	SamplesPerClass int    // 0 = all
	ShardCacheMB    int    // MiB
	EXIFOrientation bool
	Corrupt         string // error, skip
	CorruptLimit    int    // samples
}

// Keys lists these keys.
func (d *DataInput) Keys() []Key {
	return []Key{
		String(&d.ValPath, "val_path", "").Operational().
			Doc("`webdataset`: the evaluation shards, in the form of `path`. Empty: shards with matching names (`val-*.tar`, `val/`); without such shards, `val_fraction` of the samples."),
		String(&d.ClassNames, "class_names", "").Operational().
			Doc("File with one class name per line. Accepted are `synset_words.txt`, `LOC_synset_mapping.txt` (`n01440764 tench, …`, where the first word is the class folder), and a plain list in the order of numeric labels. Empty: such a file next to the data; without one, the names of the folders or the numbers."),
		Int(&d.MaxClasses, "max_classes", 0).Unit("classes").Learnt().
			Doc("Number of classes to use in training and evaluation, in the order of the data set. 0: all."),
		Int(&d.SamplesPerClass, "samples_per_class", 0).Unit("samples").Learnt().
			Doc("Maximum number of training samples per class. The choice does not change between runs, and a smaller number selects a subset of a larger one. 0: all."),
		Int(&d.ShardCacheMB, "shard_cache_mb", 512).Unit("MiB").AtLeast(1).AtMost(1 << 20).Operational().
			Doc("Memory per rank for decompressed frames of `.tar.zst` shards."),
		Bool(&d.EXIFOrientation, "exif_orientation", false).Learnt().
			Doc("Rotates photographs by their EXIF orientation. By default Pillow and torchvision do not, so their models are trained on images as stored."),
		Choice(&d.Corrupt, "corrupt", "error", "error", "skip").Operational().
			Doc("Reaction to an unreadable image. `error`: the run ends (exit 3). `skip`: another sample replaces the image, the same sample on every rank and after every resume; the log counts it."),
		Int(&d.CorruptLimit, "corrupt_limit", 100).Unit("samples").AtLeast(1).Operational().Only(Is("data.corrupt", "skip")).
			Doc("Maximum number of unreadable samples in one epoch or evaluation, over all ranks. More end the run (exit 3)."),
	}
}
