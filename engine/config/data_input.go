package config

// DataInput contains the keys of table [data] that select samples and describe their files.
type DataInput struct {
	ValPath         string // path of evaluation samples; "": a part of Path with a known name, or else a split of Path
	FollowLinks     bool   // follow links that leave a folder of data
	ClassNames      string // file of class names; "": names in the data or next to it
	MaxClasses      int    // 0: all
	SamplesPerClass int    // 0: all
	ShardCacheMB    int    // size of the cache, MiB
	ObjectCacheMB   int    // size of the cache of objects on disk, MiB; 0: none
	EXIFOrientation bool
	Corrupt         string // "error" or "skip"
	CorruptLimit    int    // maximum number of unreadable samples
}

// Keys returns these keys.
func (d *DataInput) Keys() []Key {
	return []Key{
		String(&d.ValPath, "val_path", "").PathOrObjects().Operational().
			Doc("Evaluation samples of `images`, `webdataset`, `text` and `labelled_text`, written in the same ways as `path`. Evaluations use all of them. Empty: the evaluation part of `path`; without such a part, `val_fraction` of the samples (`text`: none)."),
		Bool(&d.FollowLinks, "follow_links", true).Operational().
			Doc("Follow symbolic links that leave a folder of data. `false`, for folders of unknown origin: such a link is an error (exit 3). A link to a folder that contains the link is always an error."),
		String(&d.ClassNames, "class_names", "").Path().Operational().
			Doc("File with one class name per line. The file can be `synset_words.txt` or `LOC_synset_mapping.txt` (lines such as `n01440764 tench, …`, class folder first), or a plain list in the order of the numeric labels. Empty: the program uses such a file next to the data; without one, class names are folder names or numbers."),
		Int(&d.MaxClasses, "max_classes", 0).Unit("classes").Learnt().
			Doc("Number of classes to use in training and evaluation, in the order of the data set. 0: all."),
		Int(&d.SamplesPerClass, "samples_per_class", 0).Unit("samples").Learnt().
			Doc("Maximum number of training samples per class. The choice is the same in every run, and a smaller number selects a subset of what a larger number selects. 0: all."),
		Int(&d.ShardCacheMB, "shard_cache_mb", 512).Unit("MiB").AtLeast(1).AtMost(1 << 20).Operational().
			Doc("Memory per rank for decompressed frames of `.tar.zst` shards."),
		Int(&d.ObjectCacheMB, "object_cache_mb", 50<<10).Unit("MiB").AtMost(1 << 30).Operational().
			Doc("Disk space for objects of S3, in the folder `objects` of `cache_dir`. All ranks of a machine share it, and the least recently used parts are removed. If the data set is larger, nothing is kept, and each epoch requests its samples again. 0: keep nothing."),
		Bool(&d.EXIFOrientation, "exif_orientation", false).Learnt().
			Doc("Rotates photographs by their EXIF orientation. Pillow and torchvision do not rotate by default, so torchvision's models are trained on images as stored."),
		Choice(&d.Corrupt, "corrupt", "error", "error", "skip").Operational().
			Doc("Reaction to damaged data. `error`: the run ends (exit 3). `skip`: damaged files, and samples that are faulty when the data are opened, are left out, and the end of the run lists them; another sample replaces a sample that cannot be read during training, and the log counts the replacement. The replacement is the same on every rank and after every resume."),
		Int(&d.CorruptLimit, "corrupt_limit", 100).Unit("samples").AtLeast(1).Operational().Only(
			Is("data.corrupt", "skip")).
			Doc("Maximum number of unreadable samples in one epoch or evaluation, over all ranks, each counted once, and of single samples that are left out when the data are opened. If there are more, the run ends (exit 3). It does not limit damaged files: the run ends if these are more than one and more than 10 % of the files."),
	}
}
