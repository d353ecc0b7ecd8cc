// Package stored opens the files of data sets, which are local files or S3 objects (s3://BUCKET/KEY). The keys of a
// bucket form folders, with slashes as separators.
//
//	stored.Configure(stored.Options{CacheDir: dir, CacheBytes: limit, Logger: log})   // once
//	err := stored.Plan(ctx, paths)      // sizes of all objects of a data set
//	f, info, err := stored.Open(path)   // reads in order are fetched ahead
//	f, info, err := stored.OpenRandom(path)
//
// # Cache
//
// Objects are read in blocks of 4 MiB, which are stored as files below CacheDir. The folder of an object depends on the
// server, the name, the size and the ETag, so a changed object has other blocks. All processes of a machine share the
// cache, and fetch each block once. A block appears atomically when it is complete. If the cache exceeds CacheBytes,
// the least recently used blocks are removed.
//
// If the objects passed to Plan are larger than CacheBytes in total, blocks would be removed before their next use. In
// this case nothing is stored. A random read requests exactly its own bytes, and sequential reads fetch blocks into
// memory.
//
// # Cancellation
//
// Within sets the context of a run. The signal that ends the run also ends its requests, which otherwise could be
// retried for minutes.
//
// # Identity
//
// A process reads one version of an object. It notes the size and the ETag when it first accesses the object, and a
// later change is an error. Version identifies the contents of an object, as the modification time does for a file.
package stored
