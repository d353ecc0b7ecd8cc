// Package webdataset reads images from WebDataset shards. A shard is a tar archive in which files with the same base
// name form a sample.
//
//	train-000000.tar:  n01440764_10026.jpg  n01440764_10026.cls  n01440764_10027.jpg  n01440764_10027.cls …
//
// A sample has one image (.jpg, .jpeg, .png) and a label: .cls, else .json with "label", "cls" or "class", else .txt.
// If all labels are numbers, they are the class numbers. If all labels are names, the classes are the sorted names.
// Other files of a sample are ignored. The base name is the path up to the first dot of its last element. The files of
// a sample must be adjacent, as the format requires.
//
// Shards are plain, gzip-compressed or zstd-compressed tars, with any name. Options.Path is one of:
//
//	shards/                       a folder: train-*.tar and val-*.tar, or train/ and val/, or shards of only one of the two
//	train-{000000..000146}.tar    braces: ranges, and alternatives {a,b}; several patterns are joined with ::
//	shards.txt                    a list, one pattern per line, relative to the list's folder
//
// Open reads each shard once. Of a plain tar it reads the headers and labels, of a compressed one all bytes. It stores
// an index of each shard in the cache folder. It identifies a shard by path, size, time, and a hash of the shard's
// first and last bytes. The index gives the offset of every sample. The loader can therefore shuffle all samples
// exactly, not only those of one shard.
//
// # Compressed shards
//
// A gzip stream can be read only from its start. Open therefore expands such a shard once, into a plain tar in the
// cache folder.
//
// A zstd file can be read from the start of any frame. Tools for seekable files write many frames (the seekable format,
// pzstd, Repack). Plain zstd writes a single frame, which must be decompressed completely for any sample in it. The
// loader keeps Options.CacheBytes of decompressed parts in memory; single-frame shards that fit are as fast as others.
// Open logs a warning if shards do not fit. A single frame above the limit is an error. Shuffling within a buffer of
// samples, as other loaders do, would avoid the decompression. However, samples of one shard would then stay close
// together, and the order would depend on the number of ranks.
//
// # Errors
//
// A fault of a shard is of type *data.Fault. It names the place as the path of the shard, "!" and the name of the
// member. If a shard vanishes or changes during training, the fault names the sample that was being read.
package webdataset
