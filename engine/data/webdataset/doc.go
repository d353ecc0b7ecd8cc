// Package webdataset reads images from WebDataset shards. A shard is a tar archive in which files with the same base
// name form a sample.
//
//	train-000000.tar:  n01440764_10026.jpg  n01440764_10026.cls  n01440764_10027.jpg  n01440764_10027.cls …
//
// A sample has one image and a label. The image has the extension .jpg, .jpeg, .png or .webp, or otherwise another
// extension of images.Endings. The label comes from .cls, otherwise from "label", "cls" or "class" in .json, otherwise
// from .txt. If all labels are numbers, the labels are the class numbers. If all labels are names, the classes are the
// sorted names.
//
// Other files of a sample are ignored. The base name is the path up to the first dot in its last element, so an
// extension can contain dots. A sample without such an image may have one image with further dots in its extension,
// such as input.jpg. A sample without such a label may have one label file such as output.cls. The format requires that
// the files of a sample are adjacent.
//
// A shard is a plain, gzip-compressed or zstd-compressed tar with any name. Options.Path is one of:
//
//	shards/                       a folder of shards, or with subfolders of shards whose names state parts
//	train-{000000..000146}.tar    braces: ranges, and alternatives {a,b}; several patterns are joined with ::
//	shards.txt                    a list, one pattern per line, relative to the list's folder
//
// The names of shards and subfolders determine the parts of the data set; see package layout. If all shards of a
// pattern or a list name the same part, they are all for training.
//
// Open reads each shard once. In a plain tar, it reads only headers and labels; in a compressed tar, it reads all
// bytes. Open stores an index of each shard in the cache folder. The path, size and modification time of a shard
// identify it, together with a hash of its first and last bytes.
//
// The index contains the offset of every sample. The loader can therefore shuffle the samples of all shards, not only
// those within one shard.
//
// # Compressed shards
//
// A gzip stream can be read only from its start. Open therefore expands such a shard once, to a plain tar in the cache
// folder.
//
// A zstd file can be read from the start of any frame. Tools for seekable files write many frames (the seekable format,
// pzstd, Repack). Plain zstd writes a single frame, which must be decompressed completely for each sample.
//
// The loader keeps up to Options.CacheBytes of decompressed frames in memory. If all single-frame shards fit, they are
// as fast as other shards. Otherwise Open logs a warning. A single frame above the limit is an error.
//
// Other loaders shuffle within a buffer of samples, which avoids the repeated decompression. The samples of a shard
// would then remain close together, and the order would depend on the number of ranks.
//
// # Errors
//
// An error in a shard is a *data.Fault. Its path consists of the path of the shard, "!" and the name of the member. If
// a shard is removed or changed during training, the Fault names the sample that was being read.
package webdataset
