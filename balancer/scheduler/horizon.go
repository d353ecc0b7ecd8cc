package scheduler

import "math"

// horizon bounds the times at which the GPUs of one type become free in a plan: for each n, the n-th GPU is free at
// this time or earlier. The bounds do not depend on which machines the GPUs belong to. Times are in s.
type horizon struct {
	rest    cursor    // GPUs that running jobs use, by their predicted ends
	planned []stretch // other GPUs; a heap, the earliest first
	gpus    int
}

// stretch is a number of GPUs that become free at the same time.
type stretch struct {
	at float64
	n  int
}

func (h *horizon) reset(ends *sorted, free int, now float64) {
	h.rest, h.planned, h.gpus = ends.first(), h.planned[:0], free+ends.n
	if free > 0 {
		h.give(free, now)
	}
}

// take takes the n GPUs that are free first, and returns when the last of them is free. It returns +Inf and takes none
// if there are fewer. All GPUs must become free at some time.
func (h *horizon) take(n int) (at float64) {
	if n > h.gpus {
		return math.Inf(1)
	}
	for n > 0 {
		x, more := h.rest.get()
		if len(h.planned) == 0 || more && x.key <= h.planned[0].at {
			at, n = x.key, n-1
			h.rest.next()
			continue
		}
		v := &h.planned[0]
		m := min(n, v.n)
		at, n, v.n = v.at, n-m, v.n-m
		if v.n == 0 {
			h.pop()
		}
	}
	return at
}

// give returns n GPUs at a time.
func (h *horizon) give(n int, at float64) {
	v := append(h.planned, stretch{at, n})
	for i := len(v) - 1; i > 0 && v[i].at < v[(i-1)/2].at; i = (i - 1) / 2 {
		v[i], v[(i-1)/2] = v[(i-1)/2], v[i]
	}
	h.planned = v
}

// pop removes the first stretch.
func (h *horizon) pop() {
	last := len(h.planned) - 1
	v := h.planned[:last]
	if last > 0 {
		v[0] = h.planned[last]
	}
	for i := 0; 2*i+1 < last; {
		child := 2*i + 1
		if child+1 < last && v[child+1].at < v[child].at {
			child++
		}
		if !(v[child].at < v[i].at) {
			break
		}
		v[i], v[child] = v[child], v[i]
		i = child
	}
	h.planned = v
}
