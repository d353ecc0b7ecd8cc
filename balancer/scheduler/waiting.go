package scheduler

import "math"

// waiting lists the jobs of the queue in an order, one list for each shape: jobs of one shape fit on the same GPUs. The
// zero value is ready after reset. Call sync before any other method, whenever the state may have changed.
type waiting struct {
	read  reader
	lists []sorted
	have  []item // by job: its item; id is -1 if the job is in no list
	in    []int  // by job: its list
	heads []head
}

// head is the first item of a list that merge has not returned yet.
type head struct {
	item
	at cursor
}

func (q *waiting) reset(jobs, lists int) {
	*q = waiting{lists: make([]sorted, lists), have: make([]item, jobs), in: make([]int, jobs), heads: q.heads}
	for i := range q.have {
		q.have[i].id = -1
	}
}

// queued reports whether a job waits.
func (s *State) queued(job int) bool {
	low, high := 0, len(s.Queue)
	for low < high {
		if mid := (low + high) / 2; s.Queue[mid] < job {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(s.Queue) && s.Queue[low] == job
}

// sync updates the lists. place returns the list of a job and its key, which must not change while the job waits; a
// job whose list is -1 is left out.
func (q *waiting) sync(s *State, place func(job int) (list int, key float64)) {
	jobs, ok := q.read.jobs(s)
	if !ok {
		for i := range q.lists {
			q.lists[i].clear()
		}
		for i := range q.have {
			q.have[i].id = -1
		}
		for _, job := range s.Queue {
			q.add(job, place)
		}
		return
	}
	for _, job := range jobs {
		q.drop(job)
		if s.queued(job) {
			q.add(job, place)
		}
	}
}

func (q *waiting) drop(job int) {
	if q.have[job].id >= 0 {
		q.lists[q.in[job]].remove(q.have[job])
		q.have[job].id = -1
	}
}

func (q *waiting) add(job int, place func(job int) (list int, key float64)) {
	list, at := place(job)
	if list < 0 {
		return
	}
	q.have[job], q.in[job] = item{key(at), job}, list
	q.lists[list].insert(q.have[job])
}

// merge begins to go through all jobs in the order of their keys.
func (q *waiting) merge() {
	q.heads = q.heads[:0]
	for i := range q.lists {
		if q.lists[i].n > 0 {
			at := q.lists[i].first()
			x, _ := at.get()
			q.heads = append(q.heads, head{x, at})
		}
	}
	for i := len(q.heads)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}

// next returns the next job of merge. There must be one: see more.
func (q *waiting) next() (job int) {
	h := &q.heads[0]
	job = h.id
	h.at.next()
	if x, ok := h.at.get(); ok {
		h.item = x
	} else {
		last := len(q.heads) - 1
		q.heads[0] = q.heads[last]
		q.heads = q.heads[:last]
	}
	q.sink(0)
	return job
}

// more reports whether next has a job.
func (q *waiting) more() bool { return len(q.heads) > 0 }

// skip leaves out the next job of merge and all jobs after it in the same list.
func (q *waiting) skip() {
	last := len(q.heads) - 1
	q.heads[0] = q.heads[last]
	q.heads = q.heads[:last]
	q.sink(0)
}

// sink restores the order of the heap below element i.
func (q *waiting) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.heads) {
			return
		}
		if child+1 < len(q.heads) && q.heads[child+1].before(q.heads[child].item) {
			child++
		}
		if !q.heads[child].before(q.heads[i].item) {
			return
		}
		q.heads[i], q.heads[child] = q.heads[child], q.heads[i]
		i = child
	}
}

// search returns the first job, in the order of the keys up to a limit, that is accepted, or -1. A list takes part if
// fits reports so for its first job. It then reports whether all jobs of the list are accepted, else accept decides.
func (q *waiting) search(limit float64, fits func(job int) (some, all bool), accept func(job int) bool) int {
	best := item{math.Inf(1), math.MaxInt}
	for i := range q.lists {
		at := q.lists[i].first()
		x, ok := at.get()
		if !ok || x.key > limit || !x.before(best) {
			continue
		}
		some, all := fits(x.id)
		if !some {
			continue
		}
		for ; ok && x.key <= limit && x.before(best); x, ok = at.get() {
			if all || accept(x.id) {
				best = x
				break
			}
			at.next()
		}
	}
	if best.id == math.MaxInt {
		return -1
	}
	return best.id
}
