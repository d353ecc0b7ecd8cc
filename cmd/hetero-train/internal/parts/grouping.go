package parts

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// groupByLength returns the key data.group_by_length, which puts samples of similar length into one step.
func groupByLength(field *bool) config.Key {
	return config.Bool(field, "group_by_length", false).Learnt().
		Doc("Puts samples of similar length into one step, and pads them only to the longest of them, rounded up. Training computes less padding; the order of the samples depends on their lengths.")
}

// fewestPositions is the smallest difference between two padded lengths of steps. Kernels compute 8 or more positions
// at a time, so a smaller difference saves no time.
const fewestPositions = 8

// mostLengths is the largest number of different padded lengths. With more lengths, steps have less padding, but a rank
// compiles one plan for each length when its share changes.
const mostLengths = 8

// shorterLengths returns the padded lengths below length, in ascending order. They are multiples of fewestPositions,
// and lengths that no sample needs are left out.
func shorterLengths(samples data.Samples, length int) (all []int) {
	lengths := samples.(data.Lengths)
	shortest, longest := math.MaxInt, 0
	for i := range samples.Len() {
		shortest, longest = min(shortest, lengths.Length(i)), max(longest, lengths.Length(i))
	}
	unit := (length + mostLengths - 1) / mostLengths
	unit = (unit + fewestPositions - 1) / fewestPositions * fewestPositions
	for n := unit; n < length; n += unit {
		if n >= shortest && n < longest+unit {
			all = append(all, n)
		}
	}
	return all
}
