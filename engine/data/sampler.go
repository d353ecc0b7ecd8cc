package data

// Permutation fills order with the samples 0 … len(order)-1 in the order of an epoch: a Fisher-Yates shuffle from the
// last position to the second. Its random numbers are a function of (seed, epoch). All orders are equally likely.
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

// batchesPerEpoch returns the number of parts (global batches, or their accumulation parts) in an epoch of n samples.
// Training counts only whole optimizer steps of part*accumulation samples; evaluation counts the rest as a last batch.
func batchesPerEpoch(n, part, accumulation int, evaluate bool) int {
	if evaluate {
		return (n + part - 1) / part
	}
	return n / (part * accumulation) * accumulation
}
