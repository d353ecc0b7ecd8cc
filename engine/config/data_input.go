package config

// DataInput are the keys of the [data] table that say which of the samples are read, and how their files are.
type DataInput struct {
	ValPath         string // webdataset: shards of the part held out; "" finds or cuts it
	ClassNames      string // file of class names; "" where the data names them
	MaxClasses      int    // 0 = all
	SamplesPerClass int    // 0 = all
	ShardCacheMB    int    // MiB
	EXIFOrientation bool
	Corrupt         string // error, skip
	CorruptLimit    int    // samples
}

// Keys lists them.
func (d *DataInput) Keys() []Key {
	return []Key{
		String(&d.ValPath, "val_path", "").Operational().
			Doc("`webdataset`: the shards held out for evaluation, written as `path`. Empty: those whose names say so (`val-*.tar`, `val/`), else `val_fraction` of the samples."),
		String(&d.ClassNames, "class_names", "").Operational().
			Doc("File with a name for each class, one a line: `synset_words.txt`, `LOC_synset_mapping.txt` (`n01440764 tench, …`; the first word is the class folder), or a plain list in the order of numeric labels. Empty: such a file beside the data where there is one, else the names of folders or the numbers."),
		Int(&d.MaxClasses, "max_classes", 0).Unit("classes").Learnt().
			Doc("Number of classes to use, from the first one on, in training and evaluation. 0: all."),
		Int(&d.SamplesPerClass, "samples_per_class", 0).Unit("samples").Learnt().
			Doc("Most training samples to use of each class. The choice is always the same, and a smaller number takes a subset of a larger one. 0: all."),
		Int(&d.ShardCacheMB, "shard_cache_mb", 512).Unit("MiB").AtLeast(1).AtMost(1 << 20).Operational().
			Doc("`webdataset`: memory of each rank for decompressed parts of `.tar.gz` and `.tar.zst` shards."),
		Bool(&d.EXIFOrientation, "exif_orientation", false).Learnt().
			Doc("Turns and mirrors photographs as the orientation in their EXIF data says. Pillow, and with it torchvision, does not unless told to, so models trained there have seen them as they are stored."),
		Choice(&d.Corrupt, "corrupt", "error", "error", "skip").Operational().
			Doc("What an image that cannot be read or decoded does. `error`: it ends the run (exit 3). `skip`: another sample takes its place, the same on every rank and after every resume, and it is counted."),
		Int(&d.CorruptLimit, "corrupt_limit", 100).Unit("samples").AtLeast(1).Operational().
			Doc("With `corrupt = \"skip\"`: more unreadable samples than this, in one epoch or evaluation over all ranks, end the run (exit 3)."),
	}
}
