// Package precision determines the number format in which a device trains fastest. It trains a small network in each
// format for a short time, and caches the result.
//
//	seconds, err := precision.Time(ctx, dev, []tensor.DType{tensor.BF16, tensor.F32}) // on each rank
//	best := precision.Fastest([][]float64{seconds, …})                             // times of all ranks with equal devices, which all get the same best
//	err = cache.Store(key, precision.Choice{Type: "bf16", …})
//
// [Time] takes a few hundred milliseconds, and its result is noisy on a busy machine. Two rules keep runs reproducible.
// Unless another format is faster by [Margin], the first format is chosen. A [Cache] stores the choice, so later runs
// on the same device do not repeat the measurement.
//
// Time returns the errors of the device and of the context. The device must compute values: Time returns an error for a
// device that only models time. Load returns an error for a damaged file.
package precision
