// Package webdataset reads images from WebDataset shards: tar archives in which the files with one base name form a
// sample.
//
//	train-000000.tar:  n01440764_10026.jpg  n01440764_10026.cls  n01440764_10027.jpg  n01440764_10027.cls …
//
// A sample has one image (.jpg, .jpeg, .png) and a label: .cls, else .json with "label", "cls" or "class", else .txt.
// Either all labels are numbers, which are the classes, or all are names, which are sorted into classes. Other files of
// a sample are ignored. The base name is everything before the first dot of the last part of the name, including the
// folders. The files of a sample are adjacent, as the format requires.
//
// Shards are plain, gzip-compressed or zstd-compressed tars, with any name. Options.Path is one of:
//
//	shards/                       a folder: train-*.tar and val-*.tar, or train/ and val/, or shards of one part
//	train-{000000..000146}.tar    braces: ranges, and alternatives {a,b}; several patterns are joined with ::
//	shards.txt                    a list, one pattern per line, relative to the list's folder
//
// Open reads each shard once: the headers and labels of a plain tar, all of a compressed one. It stores an index of
// each shard in the cache folder. It identifies a shard by path, size, time and a hash of both of its ends. Afterwards
// any sample is read at its offset, so the order of samples is the loader's exact shuffle of all samples.
//
// # Compressed shards
//
// A gzip stream can be read only from its start, so Open expands such a shard into a plain tar in the cache folder,
// once.
//
// A zstd file can be read from the start of any frame. Tools for seekable files write many frames (the seekable format,
// pzstd, Repack). Plain zstd writes a single frame, which must be decompressed completely for any sample in it. The
// loader keeps Options.CacheBytes of decompressed parts in memory; single-frame shards that fit are as fast as others.
// Open warns of shards that do not fit. A single frame above the limit is an error. Shuffling shards with a buffer of
// samples would avoid this cost. However, samples of one shard would then stay close together, and the order would
// depend on the number of ranks.
//
// # Errors
//
// A fault of a shard is a *data.Fault with the path of the shard, "!" and the name of the member. If a shard vanishes
// or changes during training, the sample that is being read is reported as faulty.
package webdataset
