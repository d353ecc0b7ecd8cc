// Package curves caches step-time curves between runs, so that a run on known devices starts with nearly the best
// shares.
//
//	cache := curves.Open(dir)                                   // <user's cache folder>/hetero-train/curves
//	c, err := cache.Load("cpu AMD EPYC avx512 1 CPU; resnet50 f32 224")   // nil, nil if there is none
//	err = cache.Store(key, c)
//
// A key contains everything on which a curve depends: device type, model, precision, sizes. Each key has one JSON file,
// named by the key's hash and written atomically. The folder can be deleted at any time. For a file that is damaged or
// of another version Load returns an error, and the next Store replaces the file.
package curves
