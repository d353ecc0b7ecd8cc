package data

// Permutation fills order with a permutation of the samples 0 to len(order)-1 for one epoch. It is a Fisher-Yates
// shuffle from the last position to the second. Its random numbers are a function of (seed, epoch). All orders are
// equally likely.
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

// batchesPerEpoch returns the number of batches in an epoch of n samples. Each batch has part samples: it is a global
// batch, or one accumulation part of a global batch. In training, an optimizer step has part*accumulation samples. In
// evaluation and with keepLast, the remaining samples form a last batch or step. The last parts of this step may be
// empty.
func batchesPerEpoch(n, part, accumulation int, evaluate, keepLast bool) int {
	switch step := part * accumulation; {
	case evaluate:
		return (n + part - 1) / part
	case keepLast:
		return (n + step - 1) / step * accumulation
	default:
		return n / step * accumulation
	}
}
