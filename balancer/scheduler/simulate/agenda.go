package simulate

import "math"

// agenda contains the time of the next event of each running job: a heap with the earliest event first.
type agenda struct {
	heap  []int     // jobs
	place []int     // by job: index into heap, or -1
	at    []float64 // by job: seconds
}

func (a *agenda) reset(jobs int) {
	a.heap, a.place, a.at = a.heap[:0], sized(a.place, jobs), sized(a.at, jobs)
	for i := range a.place {
		a.place[i] = -1
	}
}

// next returns the earliest time, or +Inf if there is no event.
func (a *agenda) next() float64 {
	if len(a.heap) == 0 {
		return math.Inf(1)
	}
	return a.at[a.heap[0]]
}

// pop removes the earliest event, and returns its job. The job keeps its time.
func (a *agenda) pop() (job int) {
	job = a.heap[0]
	a.remove(job)
	return job
}

// set adds or changes the event of a job.
func (a *agenda) set(job int, at float64) {
	a.at[job] = at
	if a.place[job] < 0 {
		a.place[job] = len(a.heap)
		a.heap = append(a.heap, job)
	}
	a.rise(a.place[job])
	a.sink(a.place[job])
}

// remove removes the event of a job, if it has one.
func (a *agenda) remove(job int) {
	i, last := a.place[job], len(a.heap)-1
	if i < 0 {
		return
	}
	a.place[job] = -1
	moved := a.heap[last]
	a.heap = a.heap[:last]
	if i == last {
		return
	}
	a.heap[i], a.place[moved] = moved, i
	a.rise(i)
	a.sink(a.place[moved])
}

func (a *agenda) swap(i, k int) {
	a.heap[i], a.heap[k] = a.heap[k], a.heap[i]
	a.place[a.heap[i]], a.place[a.heap[k]] = i, k
}

func (a *agenda) rise(i int) {
	for i > 0 && a.at[a.heap[i]] < a.at[a.heap[(i-1)/2]] {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (a *agenda) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(a.heap) {
			return
		}
		if child+1 < len(a.heap) && a.at[a.heap[child+1]] < a.at[a.heap[child]] {
			child++
		}
		if !(a.at[a.heap[child]] < a.at[a.heap[i]]) {
			return
		}
		a.swap(i, child)
		i = child
	}
}

// startHeap contains jobs, the one that started first on top.
type startHeap []started

// started is a running job with the number of starts before it.
type started struct{ order, job int }

func (h *startHeap) push(order, job int) {
	v := append(*h, started{order, job})
	for i := len(v) - 1; i > 0 && v[i].order < v[(i-1)/2].order; i = (i - 1) / 2 {
		v[i], v[(i-1)/2] = v[(i-1)/2], v[i]
	}
	*h = v
}

func (h *startHeap) pop() (job int) {
	v := *h
	job = v[0].job
	last := len(v) - 1
	v[0] = v[last]
	v = v[:last]
	for i := 0; 2*i+1 < last; {
		child := 2*i + 1
		if child+1 < last && v[child+1].order < v[child].order {
			child++
		}
		if v[child].order >= v[i].order {
			break
		}
		v[i], v[child] = v[child], v[i]
		i = child
	}
	*h = v
	return job
}
