// Package curves keeps step-time curves between runs, so that a run on devices that are known starts with nearly the best shares.
//
//	cache := curves.Open(dir)                                   // <user's cache folder>/hetero-train/curves
//	c, err := cache.Load("cpu AMD EPYC avx512 1 CPU; resnet50 f32 224")   // nil, nil where nothing is known
//	err = cache.Store(key, c)
//
// A key says everything that a curve depends on: device type, model, precision, sizes. One file a key, JSON, named by the key's hash and written whole or not
// at all. The folder is safe to delete at any time. A file that is damaged or from another version is an error of Load, and overwritten by the next Store.
package curves
