package estimate

import (
	"math"
	"slices"
)

// ProfileShares returns the shares whose times determine the shape of a rank's curve around an expected share, the most
// useful first. A profile measures as many of them as its time allows.
//
//	expected  samples, > 0: the share of the rank if the step time were proportional to the share
//	most      samples: the largest share that the rank can hold
//	unit      samples: shares are multiples of unit
//
// The shares span a factor of four in both directions. Near the power of two that is closest to the expected share,
// they contain a share that fills each aligned tile ([tiles]), and one that fills none.
func ProfileShares(expected float64, most, unit int) []int {
	unit = max(unit, 1)
	expected = min(max(expected, 1), float64(most))
	whole := int(math.Exp2(math.Round(math.Log2(expected)))) // fills every tile that is not larger than it
	var shares []int
	for _, samples := range []int{whole, 2 * whole, whole / 2, int(math.Round(expected)), whole + 1, whole / 4,
		whole + 8, whole + 4, whole + 16, whole + 32, whole - 1, 4 * whole} {
		samples = (samples + unit - 1) / unit * unit
		if samples >= unit && samples <= min(most, 4*whole) && !slices.Contains(shares, samples) {
			shares = append(shares, samples)
		}
	}
	return shares
}
