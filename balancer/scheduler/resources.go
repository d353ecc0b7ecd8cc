package scheduler

// slack is the largest relative rounding error of sums of requested resources.
const slack = 1e-9

// Multiples returns how often a demand fits into a capacity. The result is at most 1<<30, even for a demand of 0. It is
// at least 0, even for a capacity below 0: a reservation may need more than is free now. A relative rounding error of
// 1e-9 in the capacity has no effect.
func Multiples(have, need float64) int {
	if need <= 0 {
		return 1 << 30
	}
	return int(max(0, min(1<<30, (have*(1+slack))/need)))
}
