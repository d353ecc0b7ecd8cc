package data

import (
	"cmp"
	"slices"
)

// groupedBatches is the number of batches whose samples are sorted by length together. A larger number makes the
// lengths within a batch more similar. A smaller number makes a batch more similar to a random choice of samples.
const groupedBatches = 50

// groupByLength changes a random order of samples such that the samples of each batch have similar lengths. It sorts
// sections of groupedBatches batches by length, and then shuffles the batches. The result is a function of the order,
// the seed and the epoch. The samples at the end that do not fill a batch keep their positions. The lengths therefore
// do not affect which samples an epoch omits. The buffer scratch must be as long as order.
func groupByLength(order, scratch []int32, batch int, length func(int) int, seed uint64, epoch int) {
	whole := order[:len(order)-len(order)%batch]
	for stretch := range slices.Chunk(whole, groupedBatches*batch) {
		slices.SortStableFunc(stretch, func(a, b int32) int { return cmp.Compare(length(int(a)), length(int(b))) })
	}
	copy(scratch, whole)
	d := newDraws(seed, epoch, 0, streamGroups)
	places := make([]int, len(whole)/batch)
	for i := range places {
		places[i] = i
	}
	for i := len(places) - 1; i > 0; i-- {
		j := d.below(i + 1)
		places[i], places[j] = places[j], places[i]
	}
	for i, from := range places {
		copy(whole[i*batch:(i+1)*batch], scratch[from*batch:])
	}
}
