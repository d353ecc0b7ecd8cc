package divide

// Divisible returns the time of the slowest rank, in s, if shares could be any real numbers. It divides the batch among
// the ranks with shares[r] > 0. most contains the largest shares of the ranks.
func Divisible(total int, curves []Curve, shares, most []int) float64 {
	low, high := 0.0, 0.0
	for r, c := range curves {
		if shares[r] > 0 {
			high = max(high, c.At(float64(shares[r])))
		}
	}
	top := high
	ascents := make([]Curve, len(shares))
	for r, c := range curves {
		ascents[r] = c.smoothed().ascent()
	}
	for range 20 { // a millionth of the time
		mid := (low + high) / 2
		sum := 0.0
		for r, c := range ascents {
			if shares[r] > 0 {
				sum += c.inverse(mid, float64(most[r]))
			}
		}
		if sum >= float64(total) {
			high = mid
		} else {
			low = mid
		}
	}
	return min(high, top)
}
