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
// Open reads each shard once: the headers and labels of a plain tar, all of a compressed one. It keeps an index of each
// shard in the cache folder and finds the index again by path, size, time and a hash of both ends of the shard. From then
// on any sample is read from its place, so the order of samples is the loader's exact shuffle of all of them.
//
// # Compressed shards
//
// A gzip stream is read from its start only, so Open expands such a shard into a plain tar in the cache folder, once.
//
// A zstd file is read from the start of any frame. Tools that write seekable files make many frames (the seekable format,
// pzstd, Repack). Plain zstd makes one, which is decompressed in full for any sample of it. Options.CacheBytes of
// decompressed parts are kept in memory: single-frame shards that fit are as fast as any others. Open warns of those that do
// not fit; a frame that alone is larger is an error. A shuffle of shards with a buffer of samples would avoid that, but it
// makes neighbours in a shard neighbours in training, and its order depends on the number of ranks.
//
// # Errors
//
// What is wrong with shards is a *data.Fault with the path of the shard, "!" and the name of the member. A shard that
// vanishes, or changes, while it is read is one of the samples that are wanted from it.
package webdataset
