package divide

// jagged divides a batch within a time T, for curves of any form.
//
// Rank r takes at most top[r] units within T. A division exists within T if the ranks can give back the excess of these
// units over the batch. A rank can give back any number of units with which it stays within T. Most ranks can give back
// any number up to some number (back.run), so together they can give back any number up to the sum of these. Only for a
// larger excess, a set contains the possible sums of all other numbers ([sums]).
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

func (u units) newJagged(curves []Scaled, list []times) *jagged {
	return &jagged{units: u, curves: curves, times: list, backs: make([]back, len(list)), high: -1}
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

// time returns the time of a rank for n units beyond the fewest.
func (j *jagged) time(rank, n int) float64 {
	t := &j.times[rank]
	if t.exact {
		return t.base[n]
	}
	return j.curves[rank].At(float64(j.samples(rank, j.fewest(rank)+n)))
}

// within reports whether the time of a rank for n units beyond the fewest is at most seconds. It computes the exact
// time only if that is close to seconds.
func (j *jagged) within(t *times, rank, n int, seconds float64) bool {
	return j.last(t, rank, n, n, seconds) == n
}

// last returns the largest number of units beyond the fewest, from top down to least, with which a rank finishes within
// seconds, or least - 1.
func (j *jagged) last(t *times, rank, top, least int, seconds float64) int {
	above, below, factor := seconds*(1+j.tolerance), seconds*(1-j.tolerance), t.factor
	for base := t.base; top >= least; top-- {
		if about := base[top] * factor; about < below || about <= above && j.time(rank, top) <= seconds {
			break
		}
	}
	return top
}

// first returns the largest number of units beyond the fewest, from top down to least, with which a rank does not
// finish within seconds, or least - 1.
func (j *jagged) first(t *times, rank, top, least int, seconds float64) int {
	above, below, factor := seconds*(1+j.tolerance), seconds*(1-j.tolerance), t.factor
	for base := t.base; top >= least; top-- {
		if about := base[top] * factor; about > above || about >= below && j.time(rank, top) > seconds {
			break
		}
	}
	return top
}
