// Package stored opens the files of data sets, which are on this machine or objects of S3 (s3://BUCKET/KEY). The keys
// of a bucket form folders, with slashes as separators.
//
//	stored.Configure(stored.Options{CacheDir: dir, CacheBytes: limit, Logger: log})   // once
//	err := stored.Plan(ctx, paths)      // sizes of all objects of a data set
//	f, info, err := stored.Open(path)   // reads in order are fetched ahead
//	f, info, err := stored.OpenRandom(path)
//
// # Cache
//
// Objects are read in blocks of 4 MiB, which are kept as files below CacheDir. The folder of an object depends on the
// server, the name, the size and the ETag, so a changed object has other blocks. All processes of a machine share the
// cache, and fetch a block once. A block appears only when it is complete. If the cache exceeds CacheBytes, the least
// recently used blocks are removed.
//
// If the objects of Plan have more than CacheBytes, blocks would be removed before their next use. Then nothing is
// kept: a random read requests exactly its own bytes, and reads in order fetch blocks to memory.
//
// # End
//
// Within sets the context of a run. A signal that ends the run also ends its requests, which could otherwise be tried
// again for minutes.
//
// # Identity
//
// A process reads one version of an object: it notes the size and the ETag when it first sees the object, and a later
// change is an error. Version replaces the modification time where contents are identified.
package stored
