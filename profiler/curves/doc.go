// Package curves caches step-time curves between runs. If the curves of all devices are cached, a run starts with
// nearly the best shares.
//
//	cache := curves.Open(dir)                                   // <user's cache folder>/hetero-train/curves
//	c, err := cache.Load("cpu AMD EPYC avx512 1 CPU; resnet50 f32 224")   // returns nil, nil if there is no curve for the key
//	err = cache.Store(key, c)
//
// A key contains all properties on which a curve depends: device type, model, precision, sizes. Each key has one JSON
// file. Its name is a hash of the key, and it is written atomically. The folder can be deleted at any time. If a file
// is damaged or has another format version, Load returns an error, and the next Store replaces the file.
package curves
