package divide

import (
	"container/heap"
	"math/bits"
	"slices"
	"sort"
)

// A curve may rise and fall many times. If kernels process blocks (tiles) of samples, shares that fill the tiles are
// fast, and the next larger shares are slow. The search for the shares has two steps. The first step finds, by
// bisection over the possible times of ranks, the shortest step for which a division exists. The second step constructs
// the division.
//
// Rank r takes at most top[r] units within a time T. A division exists within T if the ranks can give back the excess
// of these units over the batch. A rank can give back any number of units with which it stays within T. Most ranks can
// give back any number up to some number (back.run), so together they can give back any number up to the sum of these.
// Only for a larger excess, a bit set contains the possible sums of all other numbers.
type jagged struct {
	units
	times [][]float64 // by rank and by units beyond the fewest, s; up to the time of a known division
}

// jagged finds the division with the shortest time, for curves of any form. known is a division within the limits.
func (u units) jagged(curves []Curve, known []int) []int {
	within := 0.0
	for r, n := range known {
		if n > 0 {
			within = max(within, curves[r].At(float64(u.samples(r, n))))
		}
	}
	j := jagged{u, make([][]float64, len(curves))}
	for r, c := range curves {
		if u.limit[r] > 0 {
			j.times[r] = u.timesOf(r, c, within)
		}
	}
	low, high := j.bracket(within)
	bound := high // a time within which a division exists
	for widen := 0.001; bound < within && !j.divide(bound, nil); widen *= 2 {
		bound = min(high*(1+widen), within)
	}
	var candidates []float64
	for _, times := range j.times {
		for _, t := range times {
			if t > low && t <= bound {
				candidates = append(candidates, t)
			}
		}
	}
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	i := sort.Search(len(candidates), func(i int) bool { return j.divide(candidates[i], nil) })
	if i == len(candidates) {
		return known
	}
	best := make([]int, len(curves))
	j.divide(candidates[i], best)
	return best
}

// bracket returns two times that are close to each other. Within low, the ranks together finish too few units; within
// high, they finish enough.
func (j *jagged) bracket(within float64) (low, high float64) {
	low, high = -within, within // times of 0 are above low
	for range 20 {              // a millionth of the time: few shares lie between
		middle, sum := low+(high-low)/2, 0
		for r, times := range j.times {
			if len(times) > 0 {
				top := len(times) - 1
				for top >= 0 && times[top] > middle {
					top--
				}
				if top < 0 { // no rank is left out
					sum = -1
					break
				}
				sum += j.fewest(r) + top
			}
		}
		if sum < j.total {
			low = middle
		} else {
			high = middle
		}
	}
	return low, high
}

// timesOf returns the times of a rank for its fewest units and for each further unit, up to the most that it may finish
// within seconds.
func (u units) timesOf(rank int, c Curve, within float64) []float64 {
	few := u.fewest(rank)
	times := make([]float64, max(u.upTo(rank, c, within), few)-few+1)
	at := 0 // the first point that is not below the share, as in [Curve.At]
	for n := range times {
		samples := float64(u.samples(rank, few+n))
		for at < len(c) && c[at].Samples < samples {
			at++
		}
		if at == 0 || at == len(c) {
			times[n] = c.At(samples)
		} else {
			times[n] = Between(c[at-1], c[at], samples)
		}
	}
	return times
}

// upTo returns an upper bound of the units that a rank finishes within seconds.
func (u units) upTo(rank int, c Curve, seconds float64) int {
	i := len(c) - 1
	for i >= 0 && c[i].Seconds > seconds {
		i--
	}
	samples := float64(u.samples(rank, u.limit[rank]))
	if i+1 < len(c) {
		samples = min(samples, c[i+1].Samples)
	} else if i > 0 && c[i].Seconds > c[i-1].Seconds { // the curve continues with the slope of its last two points
		a, b := c[i-1], c[i]
		samples = min(samples, b.Samples+1+(seconds-b.Seconds)*((b.Samples-a.Samples)/(b.Seconds-a.Seconds)))
	}
	n := int(samples)
	if rank == u.last {
		n -= u.rest
	}
	return min(n/u.size+1, u.limit[rank])
}

// back is the number of units that a rank can give back from its top: any number up to run, and some numbers up to
// most.
type back struct {
	top, run, most int // of j.times, beyond the fewest units
}

// divide reports whether a division exists within a time, and writes it to shares if they are not nil.
func (j *jagged) divide(seconds float64, shares []int) bool {
	backs := make([]back, len(j.times))
	excess, pool := -j.total, 0
	for r, times := range j.times {
		if len(times) == 0 {
			continue
		}
		b := back{top: len(times) - 1}
		for b.top >= 0 && times[b.top] > seconds {
			b.top--
		}
		if b.top < 0 {
			return false
		}
		for b.run < b.top && times[b.top-b.run-1] <= seconds {
			b.run++
		}
		for n := range b.top {
			if times[n] <= seconds {
				b.most = b.top - n
				break
			}
		}
		backs[r] = b
		excess += j.fewest(r) + b.top
		pool += b.run
	}
	if excess < 0 {
		return false
	}
	var sums [][]uint64 // numbers of units that the first ranks in order can give back together
	var order []int
	given := 0 // units that these ranks give back
	if excess > pool {
		for r, b := range backs {
			if b.most > b.run {
				order = append(order, r)
			}
		}
		sums = append(sums, make([]uint64, excess/64+1))
		sums[0][0] = 1
		for i, r := range order {
			sums = append(sums, j.add(sums[i], r, backs[r], seconds, excess))
			pool -= backs[r].run
			if given = highest(sums[i+1], excess); given >= excess-pool {
				order = order[:i+1]
				break
			}
		}
		if given < excess-pool {
			return false
		}
	}
	if shares != nil {
		j.construct(shares, backs, seconds, excess, sums, order, given)
	}
	return true
}

// construct writes the shares of a division that exists. The ranks in order give back given units in all. The other
// ranks give back the rest of the excess, the slowest rank first.
func (j *jagged) construct(shares []int, backs []back, seconds float64, excess int, sums [][]uint64, order []int,
	given int) {
	fixed := make([]bool, len(shares))
	left := excess - given
	for i := len(order) - 1; i >= 0; i-- {
		r := order[i]
		b := backs[r]
		fixed[r] = true
		for n := 0; n <= min(b.most, given); n++ {
			if j.times[r][b.top-n] <= seconds && sums[i][(given-n)/64]>>((given-n)%64)&1 == 1 {
				backs[r].top -= n
				given -= n
				break
			}
		}
	}
	queue := &slowest{j: j, backs: backs}
	for r := range shares {
		if !fixed[r] && backs[r].run > 0 {
			queue.ranks = append(queue.ranks, r)
		}
	}
	heap.Init(queue)
	for ; left > 0; left-- {
		r := queue.ranks[0]
		backs[r].top--
		if backs[r].run--; backs[r].run == 0 {
			heap.Pop(queue)
		} else {
			heap.Fix(queue, 0)
		}
	}
	for r := range shares {
		if len(j.times[r]) > 0 {
			shares[r] = j.fewest(r) + backs[r].top
		}
	}
}

// add returns the sums that are possible with one more rank.
func (j *jagged) add(sums []uint64, rank int, b back, seconds float64, excess int) []uint64 {
	out := make([]uint64, len(sums))
	for n := 0; n <= min(b.most, excess); n++ {
		if j.times[rank][b.top-n] > seconds {
			continue
		}
		words, shift := n/64, n%64
		for i := words; i < len(sums); i++ {
			out[i] |= sums[i-words] << shift
			if shift > 0 && i > words {
				out[i] |= sums[i-words-1] >> (64 - shift)
			}
		}
	}
	return out
}

// highest returns the largest sum up to most.
func highest(sums []uint64, most int) int {
	i := most / 64
	word := sums[i] << (63 - most%64) >> (63 - most%64)
	for word == 0 {
		i--
		word = sums[i]
	}
	return 64*i + 63 - bits.LeadingZeros64(word)
}

// slowest is a heap of ranks, the slowest first; ties go to the lower rank.
type slowest struct {
	j     *jagged
	backs []back
	ranks []int
}

func (q *slowest) Len() int { return len(q.ranks) }
func (q *slowest) Less(a, b int) bool {
	ra, rb := q.ranks[a], q.ranks[b]
	ta, tb := q.j.times[ra][q.backs[ra].top], q.j.times[rb][q.backs[rb].top]
	return ta > tb || ta == tb && ra < rb
}
func (q *slowest) Swap(a, b int) { q.ranks[a], q.ranks[b] = q.ranks[b], q.ranks[a] }
func (q *slowest) Push(any)      {}
func (q *slowest) Pop() any {
	q.ranks = q.ranks[:len(q.ranks)-1]
	return nil
}
