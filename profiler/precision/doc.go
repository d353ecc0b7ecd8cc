// Package precision finds out in which number format a device trains faster, by training in each for a moment, and remembers the answer.
//
//	seconds, err := precision.Time(ctx, dev, []tensor.DType{tensor.BF16, tensor.F32}) // on each rank
//	best := precision.Fastest([][]float64{seconds, …})                             // of ranks with devices alike: the same on all of them
//	err = cache.Store(key, precision.Choice{Type: "bf16", …})
//
// [Time] takes a few hundred milliseconds and is noisy on a busy machine. Two measures keep a run reproducible: the first format wins unless another
// one is faster by [Margin], and a [Cache] keeps the choice, so that later runs on the same device do not time again.
package precision
