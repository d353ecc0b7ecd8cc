package divide

import (
	"slices"
	"sort"
)

// bracketWidth is the difference of the times of bracket, as a fraction of the known time: few shares are between them.
const bracketWidth = 1e-6

// search finds the division with the shortest time. The times must reach up to within, the time of the known division.
// deep reports that the result is wrong if ranks may have fewer units, with times of at most least.
func (j *jagged) search(within float64, known []int) (n []int, deep bool) {
	j.bracket(within)
	j.raise(within)
	low, high := j.low, j.high
	bound := high // a time within which a division exists
	for widen := 0.001; bound < within && !j.divide(bound, nil); widen *= 2 {
		low, bound = bound, min(high*(1+widen), within)
		j.high = -1 // tops finds the tops of all ranks again
	}
	var candidates []float64
	least, most := low*(1-j.tolerance), bound*(1+j.tolerance)
	for r := range j.times {
		list := &j.times[r]
		for n, t := range list.base {
			if t *= list.factor; t >= least && t <= most {
				if t = j.time(r, n); t > low && t <= bound {
					candidates = append(candidates, t)
				}
			}
		}
	}
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	i := sort.Search(len(candidates), func(i int) bool { return j.divide(candidates[i], nil) })
	if i == len(candidates) {
		return known, j.deep
	}
	best := make([]int, len(j.times))
	j.divide(candidates[i], best)
	return best, j.deep || candidates[i] <= j.least
}

// bracket finds two times that are close to each other. Within low, the ranks together finish too few units; within
// high, they finish enough. It skips ranks that finish the same number of units within both times.
func (j *jagged) bracket(within float64) {
	// tops within low and within high, by rank
	lower, upper := make([]int32, len(j.times)), make([]int32, len(j.times))
	open, settled := make([]int, 0, len(j.times)), 0
	for r := range j.times {
		units := len(j.times[r].base)
		if lower[r], upper[r] = -1, int32(units-1); units > 0 {
			open = append(open, r)
		}
	}
	tops := make([]int32, len(open))
	low, high := -within, within // times of 0 are above low
	const near = 1. / 32
	for round := 0; round < 40 && high-low > bracketWidth*within; round++ {
		middle, sum := low+(high-low)/2, settled
		if round == 0 { // the known division is often a good one
			middle = high * (1 - near)
		}
		for i, r := range open {
			top := j.last(&j.times[r], r, int(upper[r]), int(lower[r])+1, middle)
			if top < 0 { // no rank is left out
				sum = -1
				break
			}
			tops[i] = int32(top)
			sum += j.fewest(r) + top
		}
		side := lower
		if sum >= j.total {
			high, side = middle, upper
		} else if low = middle; sum < 0 {
			continue // lower remains a lower bound
		}
		rest := open[:0]
		for i, r := range open {
			if side[r] = tops[i]; lower[r] < upper[r] {
				rest = append(rest, r)
			} else {
				settled += j.fewest(r) + int(upper[r])
			}
		}
		open = rest
	}
	j.low, j.high, j.upper, j.open, j.settled = low, high, upper, open, settled
	for r := range upper {
		j.backs[r].top = int(upper[r])
	}
}

// raise finds two longer times if the ranks need more units than the batch has even within high: a rank may take longer
// for fewer units than for more. Within the new low, the fewest units that the ranks can finish exceed the batch.
func (j *jagged) raise(within float64) {
	if j.least > 0 { // ranks may have fewer units, so a result would depend on them
		return
	}
	// bottom returns the fewest units of a rank within seconds, from few up to many; those are within seconds.
	bottom := func(r int, few, many int32, seconds float64) int32 {
		for list := &j.times[r]; few < many && !j.within(list, r, int(few), seconds); few++ {
		}
		return few
	}
	// bottoms within low, and at most those within high, by rank
	var open []int
	lower, upper := make([]int32, len(j.times)), make([]int32, len(j.times))
	settled := 0
	for r := range j.times {
		if len(j.times[r].base) == 0 {
			continue
		}
		settled += j.fewest(r)
		if lower[r] = bottom(r, 0, j.upper[r], j.high); lower[r] > 0 {
			open = append(open, r)
		}
	}
	sum := settled
	for _, r := range open {
		sum += int(lower[r])
	}
	if sum <= j.total {
		return
	}
	low, high, bottoms := j.high, within, make([]int32, len(open))
	for round := 0; round < 40 && high-low > bracketWidth*within; round++ {
		middle, sum := low+(high-low)/2, settled
		for i, r := range open {
			bottoms[i] = bottom(r, upper[r], lower[r], middle)
			sum += int(bottoms[i])
		}
		side := upper
		if sum > j.total {
			low, side = middle, lower
		} else {
			high = middle
		}
		rest := open[:0]
		for i, r := range open {
			if side[r] = bottoms[i]; upper[r] < lower[r] {
				rest = append(rest, r)
			} else {
				settled += int(upper[r])
			}
		}
		open = rest
	}
	j.low, j.high, j.open, j.settled = low, high, nil, 0
	for r := range j.times {
		list := &j.times[r]
		top := j.last(list, r, len(list.base)-1, 0, high)
		if top < 0 {
			continue
		}
		j.upper[r], j.backs[r].top = int32(top), top
		if j.last(list, r, top, 0, low) < top {
			j.open = append(j.open, r)
		} else {
			j.settled += j.fewest(r) + top
		}
	}
}
