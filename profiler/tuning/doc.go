// Package tuning chooses the sizes of a training step that do not change its result: the number of micro-batches and
// the size of gradient buckets. The caller times real steps with each candidate.
//
//	for _, n := range tuning.MicroBatches(batch, ranks, even) { … }    // ascending; start with the first one that fits into memory
//	best := tuning.Fastest(times, tuning.Margin)                      // times[i][rank]: seconds of a step with candidate i
//	err := cache.Store(key, tuning.Choice{MicroBatches: 2, …})
//
// The functions are pure. All ranks call them with the same numbers, and therefore make the same choice. [Cache] stores
// choices on the disk. Load returns an error for a damaged file.
package tuning
