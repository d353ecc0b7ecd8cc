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
			Doc("`webdataset`: the shards held out for evaluation, in the form of `path`. Empty: shards with matching names (`val-*.tar`, `val/`), else `val_fraction` of the samples."),
		String(&d.ClassNames, "class_names", "").Operational().
			Doc("File with one class name per line: `synset_words.txt`, `LOC_synset_mapping.txt` (`n01440764 tench, …`; the first word is the class folder), or a plain list in the order of numeric labels. Empty: such a file next to the data if there is one, else the names of folders or the numbers."),
		Int(&d.MaxClasses, "max_classes", 0).Unit("classes").Learnt().
			Doc("Number of classes to use, from the first one, in training and evaluation. 0: all."),
		Int(&d.SamplesPerClass, "samples_per_class", 0).Unit("samples").Learnt().
			Doc("Maximum number of training samples of each class. The choice is always the same, and a smaller number selects a subset of a larger one. 0: all."),
		Int(&d.ShardCacheMB, "shard_cache_mb", 512).Unit("MiB").AtLeast(1).AtMost(1 << 20).Operational().
			Doc("Memory of each rank for decompressed frames of `.tar.zst` shards."),
		Bool(&d.EXIFOrientation, "exif_orientation", false).Learnt().
			Doc("Applies the orientation in the EXIF data of photographs. Pillow and torchvision do not by default, so their models are trained on images as stored."),
		Choice(&d.Corrupt, "corrupt", "error", "error", "skip").Operational().
			Doc("Treatment of an unreadable image. `error`: the run ends (exit 3). `skip`: another sample replaces it, the same on every rank and after every resume, and the log counts it."),
		Int(&d.CorruptLimit, "corrupt_limit", 100).Unit("samples").AtLeast(1).Operational().Only(Is("data.corrupt", "skip")).
			Doc("More unreadable samples than this, in one epoch or evaluation over all ranks, end the run (exit 3)."),
	}
}
