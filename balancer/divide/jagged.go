package divide

import (
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
// Only for a larger excess, a set contains the possible sums of all other numbers ([sums]).
type jagged struct {
	units
	curves    []Scaled
	times     []times // by rank; up to the time of a known division
	tolerance float64 // relative error of times that are not exact
	// low and high are the times of bracket or raise, in s. upper is the largest index of the times of each rank that
	// is within high. It is the same within each time between them, except for the ranks in open. The other ranks
	// finish settled units.
	low, high float64
	upper     []int32
	open      []int
	settled   int
	backs     []back
	// Times up to least (s) may be missing. deep reports that the result may depend on them. A rank finishes all these
	// units within any time above least, so its top within such a time is the same without them. The result depends on
	// them only if ranks must give back units with times of at most least.
	least float64
	deep  bool
}

// jagged finds the division with the shortest time, for curves of any form. It returns nil if it finds no time within
// which a division exists.
func (u units) jagged(curves []Scaled) []int {
	const tries = 12
	guess := u.guessJagged(curves)
	if n, known := u.jaggedShared(curves, &guess, tries); known {
		return n
	}
	// Use only times beyond these fractions of the guess, first few and then more; 0: all times.
	beyond := []float64{0.95, 0.75, 0}
	for try := range tries {
		within := guess.time(try)
		for beyond[0] > 0 {
			n, short := u.jaggedNear(curves, within, beyond[0]*min(within, guess.balanced*guessMargin))
			if n != nil {
				return n
			}
			if short {
				break
			}
			beyond = beyond[1:]
		}
		if beyond[0] == 0 {
			j := u.newJagged(curves, exactTimes(u.timesWithin(curves, within)))
			if j.divide(within, nil) {
				n, _ := j.search(within, nil)
				return n
			}
		}
	}
	return nil
}

// jaggedShared is jagged for ranks that share the points of their curves. It returns false if few ranks do.
func (u units) jaggedShared(curves []Scaled, guess *guess, tries int) (n []int, known bool) {
	for _, beyond := range []float64{0.75, 0} { // of the guess; first few times of ranks with own points, then all
		classes, many := u.classes(curves, beyond*min(guess.time(0), guess.balanced*guessMargin))
		deep := false
		for try := 0; many && !deep && try < tries; try++ {
			within := guess.time(try)
			list, tolerance := classes.times(curves, within)
			j := classes.newJagged(curves, list)
			j.tolerance, j.least = tolerance, classes.least
			if !j.divide(within, nil) {
				deep = j.deep
				continue
			}
			if n, deep = j.search(within, nil); !deep {
				return n, true
			}
		}
		if !deep {
			return nil, many
		}
	}
	return nil, false
}

// bracketWidth is the difference of the times of bracket, as a fraction of the known time: few shares are between them.
const bracketWidth = 1e-6

func (u units) newJagged(curves []Scaled, list []times) *jagged {
	return &jagged{units: u, curves: curves, times: list, backs: make([]back, len(list)), high: -1}
}

// jaggedWithin is jagged for a known division within the limits. A slow known division takes longer, and does not
// change the result.
func (u units) jaggedWithin(curves []Scaled, known []int) []int {
	within := 0.0
	for r, n := range known {
		if n > 0 {
			within = max(within, curves[r].At(float64(u.samples(r, n))))
		}
	}
	n, _ := u.newJagged(curves, exactTimes(u.timesWithin(curves, within))).search(within, known)
	return n
}

// jaggedNear is jagged with the times from least to within only: it leaves out the first units of each rank whose times
// are all at most least. It returns nil if within is too short, or if the result may depend on these units.
func (u units) jaggedNear(curves []Scaled, within, least float64) (n []int, short bool) {
	if !(least > 0) {
		return nil, false
	}
	v := u
	v.floor = make([]int, len(curves))
	for r := range curves {
		if u.limit[r] > 0 {
			samples := curves[r].allWithin(least)
			if r == u.last {
				samples -= u.rest
			}
			v.floor[r] = max(u.fewest(r), min(samples/u.size, u.limit[r]))
		}
	}
	j := v.newJagged(curves, exactTimes(v.timesWithin(curves, within)))
	j.least = least
	if !j.divide(within, nil) {
		return nil, !j.deep
	}
	n, deep := j.search(within, nil)
	if deep {
		return nil, false
	}
	return n, false
}

// allWithin returns a number of samples up to which all shares certainly finish within seconds; 0: unknown.
func (s *Scaled) allWithin(seconds float64) int {
	within := s.unscaled(seconds * surely)
	highest := s.highestUpTo()
	low, high := 0, len(highest)
	for low < high {
		if middle := (low + high) / 2; highest[middle] > within {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low == 0 {
		return 0
	}
	samples := s.Points.Curve[low-1].Samples
	if s.PerSample*min(samples, s.Largest) > seconds*surely {
		return 0
	}
	return int(samples)
}

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

// back is the number of units that a rank can give back from its top: any number up to run, and some numbers up to
// most.
type back struct {
	top, run, most int // of j.times, beyond the fewest units
}

// tops sets the tops of the ranks within a time, and returns by how many units they exceed the batch. It returns a
// negative number if they finish too few units, or if a rank is left out.
func (j *jagged) tops(seconds float64) (excess int) {
	if seconds > j.low && seconds <= j.high {
		excess = j.settled - j.total
		for _, r := range j.open {
			top := j.last(&j.times[r], r, int(j.upper[r]), 0, seconds)
			if top < 0 {
				return -1
			}
			j.backs[r].top = top
			excess += j.fewest(r) + top
		}
		return excess
	}
	excess = -j.total
	for r := range j.times {
		list := &j.times[r]
		if len(list.base) == 0 {
			continue
		}
		top := j.last(list, r, len(list.base)-1, 0, seconds)
		if top < 0 {
			return -1
		}
		j.backs[r].top = top
		excess += j.fewest(r) + top
	}
	return excess
}

// divide reports whether a division exists within a time, and writes it to shares if they are not nil.
func (j *jagged) divide(seconds float64, shares []int) bool {
	backs, excess := j.backs, j.tops(seconds)
	if excess < 0 {
		return false
	}
	pool := 0
	for r := range j.times {
		list := &j.times[r]
		if len(list.base) == 0 {
			continue
		}
		if pool >= excess && shares == nil { // the other ranks need not give back any units
			return true
		}
		b := &backs[r]
		b.run, b.most = b.top-1-j.first(list, r, b.top-1, 0, seconds), 0
		pool += b.run
	}
	if excess > pool && j.least > 0 {
		j.deep = true
		return false
	}
	if excess > pool {
		for r := range j.times {
			list, b := &j.times[r], &backs[r]
			for n := range b.top {
				if j.within(list, r, n, seconds) {
					b.most = b.top - n
					break
				}
			}
		}
	}
	var possible []sums // numbers of units that the first ranks in order can give back together
	var order []int
	given := 0 // units that these ranks give back
	if excess > pool {
		rest := pool // of the ranks that are not in order
		for r, b := range backs {
			if b.most > b.run && given < excess-rest {
				order = append(order, r)
				given += b.most
				rest -= b.run
			}
		}
		if given < excess-rest {
			return false
		}
		if given > excess { // some ranks give back less than the most
			if order, possible, given = j.possible(seconds, excess, pool); order == nil {
				return false
			}
		}
	}
	if shares != nil {
		j.construct(shares, seconds, excess, possible, order, given)
	}
	return true
}

// possible returns the first ranks with gaps that can give back the excess together with the runs of all other ranks,
// in order, and the most units of the excess that they can give back. Element i of the sums is for the ranks before i.
// Without such ranks, order is nil.
func (j *jagged) possible(seconds float64, excess, pool int) (order []int, possible []sums, given int) {
	possible = append(possible, sums{spans: []span{{}}})
	var own []span
	for r, b := range j.backs {
		if b.most <= b.run {
			continue
		}
		own = j.spans(own[:0], r, min(b.most, excess), seconds)
		last := possible[len(order)].plus(own, excess)
		order, possible = append(order, r), append(possible, last)
		pool -= b.run
		if given = last.largest(excess); given >= excess-pool {
			return order, possible, given
		}
	}
	return nil, nil, 0
}

// construct writes the shares of a division that exists. The ranks in order give back given units in all: without
// possible sums, each one its most units. The other ranks give back the rest of the excess, the slowest rank first.
func (j *jagged) construct(shares []int, seconds float64, excess int, possible []sums, order []int, given int) {
	backs := j.backs
	fixed := make([]bool, len(shares))
	left := excess - given
	for i := len(order) - 1; i >= 0; i-- {
		r := order[i]
		b := backs[r]
		fixed[r] = true
		n := b.most
		if possible != nil {
			n = 0
			for !j.within(&j.times[r], r, b.top-n, seconds) || !possible[i].has(given-n) {
				n++
			}
		}
		backs[r].top -= n
		given -= n
	}
	left -= j.giveBack(backs, fixed, seconds, left)
	queue := make(slowest, 0, len(shares))
	for r := 0; r < len(shares) && left > 0; r++ {
		if b := &backs[r]; !fixed[r] && b.run > 0 {
			queue = append(queue, slow{j.time(r, b.top), r})
		}
	}
	queue.order()
	for ; left > 0; left-- {
		r := queue[0].rank
		j.deep = j.deep || queue[0].seconds <= j.least
		b := &backs[r]
		b.top--
		if b.run--; b.run == 0 {
			queue[0] = queue[len(queue)-1]
			queue = queue[:len(queue)-1]
		} else {
			queue[0].seconds = j.time(r, b.top)
		}
		queue.sink(0)
	}
	for r := range shares {
		if len(j.times[r].base) > 0 {
			shares[r] = j.fewest(r) + backs[r].top
		}
	}
}

// giveBack makes the ranks that are not fixed give back their slowest units, nearly left units in all, and returns
// their number. If one unit after the other of the slowest rank is given back, all units above a time are given back
// before the others. giveBack finds such a time, so that only few units remain.
func (j *jagged) giveBack(backs []back, fixed []bool, seconds float64, left int) (given int) {
	const few = 256
	if left <= few {
		return 0
	}
	// slower returns the number of units of a rank that it gives back while they take longer than a time.
	slower := func(r int, seconds float64) (n int) {
		b := &backs[r]
		return b.top - j.last(&j.times[r], r, b.top, b.top-b.run+1, seconds)
	}
	low, high := 0.0, seconds // within high, at most left units are given back
	for range 20 {
		middle, sum := (low+high)/2, 0
		for r := range backs {
			if !fixed[r] {
				sum += slower(r, middle)
			}
			if sum > left {
				break
			}
		}
		if sum > left {
			low = middle
		} else if high = middle; left-sum <= few {
			break
		}
	}
	j.deep = j.deep || high <= j.least
	for r := range backs {
		if !fixed[r] {
			n := slower(r, high)
			backs[r].top, backs[r].run, given = backs[r].top-n, backs[r].run-n, given+n
		}
	}
	return given
}

// spans appends the numbers of units, up to most, that a rank can give back from its top.
func (j *jagged) spans(list []span, rank, most int, seconds float64) []span {
	times, top := &j.times[rank], j.backs[rank].top
	for n := 0; n <= most; n++ {
		if !j.within(times, rank, top-n, seconds) {
			continue
		}
		if last := len(list) - 1; last >= 0 && list[last].last == n-1 {
			list[last].last = n
		} else {
			list = append(list, span{n, n})
		}
	}
	return list
}

// slow is a rank with its time, in s.
type slow struct {
	seconds float64
	rank    int
}

// slowest is a heap of ranks, the slowest first; ties go to the lower rank. The times are in the heap, because those of
// many ranks are not in the cache of the processor.
type slowest []slow

// before reports whether a comes before b.
func (a slow) before(b slow) bool {
	return a.seconds > b.seconds || a.seconds == b.seconds && a.rank < b.rank
}

// order makes a heap of the ranks.
func (q slowest) order() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}

// sink moves element i behind the slower ranks below it.
func (q slowest) sink(i int) {
	if i >= len(q) {
		return
	}
	moved := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(moved) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = moved
}
