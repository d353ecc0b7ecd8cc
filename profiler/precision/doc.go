// Package precision determines the number format in which a device trains faster. It trains a moment in each format and
// caches the result.
//
//	seconds, err := precision.Time(ctx, dev, []tensor.DType{tensor.BF16, tensor.F32}) // on each rank
//	best := precision.Fastest([][]float64{seconds, …})                             // of ranks with equal devices: the same on all
//	err = cache.Store(key, precision.Choice{Type: "bf16", …})
//
// [Time] takes a few hundred milliseconds and is noisy on a busy machine. Two rules keep runs reproducible. The first
// format wins unless another one is faster by [Margin]. A [Cache] keeps the choice, so later runs on the same device do
// not time again.
//
// Time returns the errors of the device and the context; the device must compute values. Load returns an error for a
// damaged file.
package precision
