package data

import "slices"

// Spread contains the minimum, median and maximum of a list of numbers.
type Spread struct {
	Min    int `json:"min"`
	Median int `json:"median"`
	Max    int `json:"max"`
}

func spreadOf(v []int) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	v = slices.Sorted(slices.Values(v))
	return Spread{v[0], v[len(v)/2], v[len(v)-1]}
}
