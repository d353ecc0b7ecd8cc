package divide

import (
	"math"
	"slices"
)

// fill finds the shortest time in which the ranks together can compute all units. It bisects all floats until two
// neighbouring floats remain: within the lower time, the units do not fit; within the higher time, they fit. It skips
// ranks that finish the same number of units within both times.
func (u units) fill(curves []Scaled) []int {
	few, many := make([]int, len(curves)), make([]int, len(curves)) // units that each finishes within low, within high
	// open: ranks that finish more units within high than within low; settled: units of the other ranks
	open, settled := make([]int, 0, len(curves)), 0
	fed := 0
	for r := range curves {
		if u.limit[r] == 0 {
			continue
		}
		few[r], many[r] = u.most(r, &curves[r], 0), u.limit[r]
		fed += few[r]
		if few[r] < many[r] {
			open = append(open, r)
		} else {
			settled += few[r]
		}
	}
	low, high := uint64(0), math.Float64bits(math.Inf(1))
	if fed >= u.total { // the units fit even in the lower bound of the time
		high, many = 0, few
		few = make([]int, len(curves))
		for r := range few {
			few[r] = min(many[r], u.fewest(r))
		}
	}
	got := make([]int, len(open))
	var guess []uint64
	if low+1 < high {
		guess = u.guess(curves, open, u.total-settled)
	}
	for low+1 < high { // positive floats are in the order of their bits
		mid := low + (high-low)/2
		if len(guess) > 0 {
			next := guess[0]
			if guess = guess[1:]; next <= low || next >= high {
				continue
			}
			mid = next
		}
		sum, side, seconds := settled, few, math.Float64frombits(mid)
		for i, r := range open {
			got[i] = u.between(r, &curves[r], seconds, few[r], many[r])
			sum += got[i]
		}
		if sum >= u.total {
			high, side = mid, many
		} else {
			low = mid
		}
		rest := open[:0]
		for i, r := range open {
			if side[r] = got[i]; few[r] < many[r] {
				rest = append(rest, r)
			} else {
				settled += few[r]
			}
		}
		open = rest
	}
	return u.even(few, many)
}

// guess returns two times, as bits, between which the time of fill probably lies, or none if there are few ranks. The
// times follow from a sample of the ranks. A wrong guess costs time, and does not change the result.
func (u units) guess(curves []Scaled, open []int, total int) []uint64 {
	const sample, around = 1024, 1. / 32
	if len(open) < 4*sample {
		return nil
	}
	ranks := make([]int, sample)
	for i := range ranks {
		ranks[i] = open[sampled(i, len(open))]
	}
	whole := int(float64(total) * sample / float64(len(open)))
	low, high := uint64(0), math.Float64bits(math.Inf(1))
	for high-low > 1<<46 { // a relative precision of 1 / 64
		mid, sum := low+(high-low)/2, 0
		for _, r := range ranks {
			sum += u.most(r, &curves[r], math.Float64frombits(mid))
		}
		if sum >= whole {
			high = mid
		} else {
			low = mid
		}
	}
	middle := math.Float64frombits(high)
	return []uint64{math.Float64bits(middle * (1 - around)), math.Float64bits(middle * (1 + around))}
}

// sampled returns element i of a sample of the indices from 0 to n-1. The golden ratio avoids the period in which types
// of ranks may alternate.
func sampled(i, n int) int {
	_, part := math.Modf(float64(i) * (math.Phi - 1))
	return int(part * float64(n))
}

// few and many are the numbers of units that each rank finishes within two neighbouring step times. even returns few,
// plus the units that few lacks of the total. It divides these units among the ranks with many > few.
func (u units) even(few, many []int) []int {
	n, left := slices.Clone(few), u.total
	var ranks, spare []int
	var room []float64
	for r := range n {
		left -= n[r]
		if many[r] > n[r] {
			ranks, spare, room = append(ranks, r), append(spare, many[r]-n[r]), append(room, float64(many[r]-n[r]))
		}
	}
	for i, more := range proportionally(left, room, spare) {
		n[ranks[i]] += more
	}
	return n
}

// proportionally divides total by weight within limits. It rounds down and then gives out the rest in order.
func proportionally(total int, weight []float64, limit []int) []int {
	out, sum := make([]int, len(weight)), 0.0
	for _, w := range weight {
		sum += w
	}
	left := total
	for i, w := range weight {
		out[i] = min(int(float64(total)*(w/sum)), limit[i], left)
		left -= out[i]
	}
	for i := range out {
		more := min(left, limit[i]-out[i])
		out[i] += more
		left -= more
	}
	return out
}

// most returns the number of units that a rank finishes within seconds, but at least fewest, because every rank that
// may have samples gets some.
func (u units) most(rank int, c *Scaled, seconds float64) int {
	samples := c.most(seconds, u.samples(rank, u.limit[rank]))
	if rank == u.last {
		samples -= u.rest
	}
	return max(samples/u.size, u.fewest(rank))
}

// between returns [units.most] for a time for which it is known to be between few and many.
func (u units) between(rank int, c *Scaled, seconds float64, few, many int) int {
	if few+1 < many && len(c.Points.Curve) > 1 {
		guess := c.passes(seconds, float64(u.samples(rank, many)))
		if rank == u.last {
			guess -= float64(u.rest)
		}
		n := int(min(max(guess/float64(u.size), float64(few)), float64(many)))
		for step := 1; n > few && c.At(float64(u.samples(rank, n))) > seconds; step *= 2 {
			many, n = n-1, max(n-step, few)
		}
		few = n
		for step := 1; few < many; step *= 2 {
			n = min(few+step, many)
			if c.At(float64(u.samples(rank, n))) > seconds {
				many = n - 1
				break
			}
			few = n
		}
	}
	for few < many {
		if n := few + (many-few+1)/2; c.At(float64(u.samples(rank, n))) <= seconds {
			few = n
		} else {
			many = n - 1
		}
	}
	return few
}
