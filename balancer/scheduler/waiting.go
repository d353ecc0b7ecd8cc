package scheduler

import "math"

// waiting lists the jobs of the queue in an order, one list for each class of jobs. The zero value is ready after
// reset. Call sync before any other method, whenever the state may have changed.
type waiting struct {
	read   reader
	shapes *shapes
	lists  []sorted  // by class
	active []int     // classes with jobs, in any order
	place  []int     // by class: index into active, or -1
	all    *sorted   // jobs of all classes; nil unless reset asks for it
	have   []item    // by job: its item; id is -1 if the job is in no list
	steps  []float64 // by job: remaining steps when it was listed
	equal  []int     // by shape: jobs in the lists; nil unless tally asks for it
	unlike []int     // by class: shapes with jobs in its list; nil as equal
	heads  []head
}

// head is the first item of a list that merge has not returned yet.
type head struct {
	item
	class int
	at    cursor
}

// reset empties the lists. total asks for a list of all jobs.
func (q *waiting) reset(v *shapes, total bool) {
	jobs := len(v.of)
	*q = waiting{shapes: v, lists: make([]sorted, len(v.classes)), place: make([]int, len(v.classes)),
		have: make([]item, jobs), steps: make([]float64, jobs), active: q.active[:0], heads: q.heads}
	for i := range q.have {
		q.have[i].id = -1
	}
	for i := range q.lists {
		q.lists[i].value, q.place[i] = q.steps, -1
	}
	if total {
		q.all = &sorted{}
	}
}

// tally makes the lists count the shapes of each class. Call reset first.
func (q *waiting) tally() {
	q.equal, q.unlike = make([]int, len(q.shapes.first)), make([]int, len(q.shapes.classes))
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

// sync updates the lists. rank returns the key of a job, which must not change while the job waits. If listed is false,
// the lists do not contain the job.
func (q *waiting) sync(s *State, rank func(job int) (key float64, listed bool)) {
	jobs, ok := q.read.jobs(s)
	if !ok {
		q.clear()
		for _, job := range s.Queue {
			q.add(s, job, rank)
		}
		return
	}
	for _, job := range jobs {
		q.drop(job)
		if s.queued(job) {
			q.add(s, job, rank)
		}
	}
}

func (q *waiting) clear() {
	for _, class := range q.active {
		q.lists[class].clear()
		q.place[class] = -1
	}
	clear(q.equal)
	clear(q.unlike)
	q.active = q.active[:0]
	if q.all != nil {
		q.all.clear()
	}
	for i := range q.have {
		q.have[i].id = -1
	}
}

func (q *waiting) drop(job int) {
	if q.have[job].id < 0 {
		return
	}
	class := q.shapes.classOf(job)
	l := &q.lists[class]
	l.remove(q.have[job])
	if q.all != nil {
		q.all.remove(q.have[job])
	}
	q.have[job].id = -1
	if q.equal != nil {
		shape := q.shapes.of[job]
		if q.equal[shape]--; q.equal[shape] == 0 {
			q.unlike[class]--
		}
	}
	if l.n == 0 {
		at, last := q.place[class], q.active[len(q.active)-1]
		q.active[at], q.place[last] = last, at
		q.active, q.place[class] = q.active[:len(q.active)-1], -1
	}
}

func (q *waiting) add(s *State, job int, rank func(job int) (key float64, listed bool)) {
	at, listed := rank(job)
	if !listed {
		return
	}
	q.have[job], q.steps[job] = item{key(at), job}, s.Remaining[job]
	class := q.shapes.classOf(job)
	if q.lists[class].n == 0 {
		q.place[class] = len(q.active)
		q.active = append(q.active, class)
	}
	q.lists[class].insert(q.have[job])
	if q.equal != nil {
		shape := q.shapes.of[job]
		if q.equal[shape]++; q.equal[shape] == 1 {
			q.unlike[class]++
		}
	}
	if q.all != nil {
		q.all.insert(q.have[job])
	}
}

// merge begins to go through all jobs in the order of their keys.
func (q *waiting) merge() {
	q.heads = q.heads[:0]
	for _, class := range q.active {
		at := q.lists[class].first()
		x, _ := at.get()
		q.heads = append(q.heads, head{x, class, at})
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
		q.sink(0)
	} else {
		q.skip()
	}
	return job
}

// pass leaves out the next job of merge, and the refused jobs of the same class that follow it. It leaves out the rest
// of the class when it reaches a job whose key is at least most, or if all reports that the whole class is refused.
func (q *waiting) pass(most float64, all func(class int) bool, refused func(job int) bool) {
	h := &q.heads[0]
	for {
		h.at.next()
		x, ok := h.at.get()
		if !ok || x.key >= most || all(h.class) {
			q.skip()
			return
		}
		if !refused(x.id) {
			h.item = x
			q.sink(0)
			return
		}
	}
}

// more reports whether next has a job.
func (q *waiting) more() bool { return len(q.heads) > 0 }

// skip leaves out the next job of merge and all jobs after it in the same class.
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

// search returns the first job, in the order of the keys up to a limit, that is accepted, or -1. most returns a number
// of steps: jobs of the class with more remaining steps are certainly not accepted. It is below 0 if no job of the
// class is accepted, and +Inf if it is not known. The time is proportional to the number of classes, of blocks of jobs
// and of calls of accept.
func (q *waiting) search(limit float64, most func(class int) float64, accept func(job int) bool) int {
	best := item{math.Inf(1), math.MaxInt}
	for _, class := range q.active {
		at := q.lists[class].first()
		if x, _ := at.get(); x.key > limit || !x.before(best) {
			continue
		}
		steps := most(class)
		if steps < 0 {
			continue
		}
		for {
			x, ok := at.get()
			if !ok || x.key > limit || !x.before(best) {
				break
			}
			if at.i == 0 && at.least() > steps {
				at.skip()
				continue
			}
			if !(q.steps[x.id] > steps) && accept(x.id) {
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

// shortest returns the job with the shortest running time if this time is at most a limit in s, else -1. rate returns a
// speed in steps/s that no job of a class exceeds; 0 if no job of the class can start. seconds returns the running time
// of a job in s; ok is false if the job cannot start. The keys must be the remaining steps. Of several jobs with the
// same time, it returns the first one, or the last one if last is set.
func (q *waiting) shortest(limit float64, last bool, rate func(class int) float64,
	seconds func(job int) (v float64, ok bool)) (job int, least float64) {
	job, least = -1, limit
	for _, class := range q.active {
		fastest := rate(class)
		if fastest == 0 {
			continue
		}
		for at := q.lists[class].first(); ; at.next() {
			x, ok := at.get()
			if !ok || x.key/fastest > least {
				break
			}
			v, ok := seconds(x.id)
			if ok && (v < least || v == least && (job < 0 || (x.id > job) == last)) {
				job, least = x.id, v
			}
		}
	}
	return job, least
}
