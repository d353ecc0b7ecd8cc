package simulate

// sized returns a slice of n elements, which reuses the memory of v.
func sized[E any](v []E, n int) []E {
	if cap(v) < n {
		return make([]E, n)
	}
	return v[:n]
}

// search returns the index of the first element that is at least v.
func search(q []int, v int) int {
	low, high := 0, len(q)
	for low < high {
		if mid := (low + high) / 2; q[mid] < v {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
