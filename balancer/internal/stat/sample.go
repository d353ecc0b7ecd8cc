package stat

import "math"

// Sample returns element i of a sample of the indices from 0 to n-1. Successive elements differ by the golden ratio,
// which avoids a period in which the kinds of elements may alternate, such as the device types of ranks.
func Sample(i, n int) int {
	_, part := math.Modf(float64(i) * (math.Phi - 1))
	return int(part * float64(n))
}
