package data

// Permutation fills order with the order of the samples 0 … len(order)-1 in an epoch: a Fisher-Yates shuffle from the
// last position to the second, its random numbers a function of (seed, epoch). All orders are equally likely.
func Permutation(order []int32, seed uint64, epoch int) {
	for i := range order {
		order[i] = int32(i)
	}
	d := newDraws(seed, epoch, 0, streamPermutation)
	for i := len(order) - 1; i > 0; i-- {
		j := d.below(i + 1)
		order[i], order[j] = order[j], order[i]
	}
}

// batchesPerEpoch is the number of parts (global batches, or the accumulation parts of one) an epoch of n samples has.
// In training only whole optimizer steps of part*accumulation samples count; in evaluation the rest is a last batch.
func batchesPerEpoch(n, part, accumulation int, evaluate bool) int {
	if evaluate {
		return (n + part - 1) / part
	}
	return n / (part * accumulation) * accumulation
}
