package divide

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
