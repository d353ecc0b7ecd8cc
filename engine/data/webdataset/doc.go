// Package webdataset reads images from WebDataset shards: tar archives in which files of one base name make a sample.
//
//	train-000000.tar:  n01440764_10026.jpg  n01440764_10026.cls  n01440764_10027.jpg  n01440764_10027.cls …
//
// A sample has one image (.jpg, .jpeg, .png) and a label: .cls, else .json with "label", "cls" or "class", else .txt.
// Labels are all numbers, the class itself, or all names, sorted into classes. Other files of a sample are passed over.
// The base name is everything before the first dot of the last part of the name, with the folders before it; files of a
// sample follow one another, as the format wants it.
//
// Shards are plain tars, gzip- or zstd-compressed, whatever they are called. Options.Path is
//
//	shards/                       a folder: train-*.tar and val-*.tar, or train/ and val/, or shards of one part
//	train-{000000..000146}.tar    braces: ranges, and alternatives {a,b}; several patterns are joined with ::
//	shards.txt                    a list, one pattern a line, relative to the list's folder
//
// Open passes over each shard once: of a plain tar it reads the headers and labels, a compressed one is decompressed to
// find places where decompressing can begin. What it finds is kept in the cache folder, found again by path, size, time
// and a hash of both ends of the shard. From then on any sample is read where it lies, so that the order of samples is
// the loader's exact shuffle of all of them; nothing is extracted to disk.
//
// # Compressed shards
//
// A gzip stream is entered where one of its blocks begins, about every 256 KiB (package inflate). A zstd file can be
// entered at frames only. Tools that write seekable files make many (the seekable format, pzstd, Repack); plain zstd makes
// one, which then has to be decompressed in full for any sample of it. Options.CacheBytes of decompressed parts are kept
// in memory: a data set of single-frame shards that fits is as fast as any other. One that does not is read slowly, and
// Open says so; a frame that alone is larger is an error. A shuffle of shards, with one of samples within a buffer,
// would avoid that, but makes neighbours in a shard neighbours in training, and its order depends on the number of ranks.
//
// # Errors
//
// What is wrong with shards is a *data.Fault with the path of the shard, "!" and the name of the member. A shard that
// vanishes, or changes, while it is read is one of the samples that are wanted from it.
package webdataset
