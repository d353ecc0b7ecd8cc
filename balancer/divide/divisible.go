package divide

import (
	"math"
	"slices"
)

// Divisible returns the time of the slowest rank, in s, if shares could be any real numbers. It divides the batch among
// the ranks with shares[r] > 0. most contains the largest shares of the ranks.
func Divisible(total int, curves []Scaled, shares, most []int) float64 {
	low, high := 0.0, 0.0
	for r := range curves {
		if shares[r] > 0 {
			high = max(high, curves[r].At(float64(shares[r])))
		}
	}
	top := high
	ascents := slices.Clone(curves)
	for r := range curves {
		c := &curves[r]
		if rises, _ := c.isValid(); !rises {
			ascents[r] = Scaled{Points: NewPoints(c.Whole().smoothed().ascent(), false)}
		}
	}
	ends := make([]float64, len(shares)) // times of the largest shares
	for r := range ascents {
		ends[r] = ascents[r].At(float64(most[r]))
	}
	sum := func(seconds float64) (samples float64) {
		for r := range ascents {
			if shares[r] > 0 {
				c := &ascents[r]
				samples += c.inverse(seconds, float64(most[r]), ends[r])
			}
		}
		return samples
	}
	// The sum is nearly a line, so the secant finds the time in a few steps. The bisection below, whose steps give the
	// result, then knows nearly all sums.
	want := float64(total)
	last, at := 0.0, high
	for lastSum, i := 0.0, 0; i < 5 && at != last; i++ {
		now := sum(at)
		next := at + (want-now)*((at-last)/(now-lastSum))
		if !(next > 0 && next <= 2*high) {
			break
		}
		last, lastSum, at = at, now, next
	}
	few, many := at*(1-1e-6), at*(1+1e-6)
	if sum(few) >= want {
		few, many = 0, few
	} else if sum(many) < want {
		few, many = many, math.Inf(1)
	}
	for range 20 { // a millionth of the time
		mid := (low + high) / 2
		if mid >= many || mid > few && sum(mid) >= want {
			high = mid
		} else {
			low = mid
		}
	}
	return min(high, top)
}
