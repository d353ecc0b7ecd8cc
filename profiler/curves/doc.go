// Package curves caches step-time curves between runs. A run on devices whose curves are cached therefore starts with
// nearly the best shares.
//
//	cache := curves.Open(dir)                                   // <user's cache folder>/hetero-train/curves
//	c, err := cache.Load("cpu AMD EPYC avx512 1 CPU; resnet50 f32 224")   // returns nil, nil if there is no curve for the key
//	err = cache.Store(key, c)
//
// A key contains everything on which a curve depends: device type, model, precision, sizes. Each key has one JSON file,
// named by the key's hash and written atomically. You can delete the folder at any time. If a file is damaged or was
// written by another version, Load returns an error, and the next Store replaces the file.
package curves
