package scheduler

import "math"

// stretch is a number of GPUs that become free at the same time.
type stretch struct {
	at float64 // seconds
	n  int
}

// horizon bounds the times at which the GPUs of one type become free in a plan, either from above or from below: for
// each n, the n-th GPU is free at this time or earlier, or at this time or later. The bounds do not depend on which
// machines the GPUs belong to.
type horizon struct {
	rest    cursor    // GPUs that running jobs use, by their predicted ends
	planned []stretch // other GPUs; a heap, the earliest first
	sign    float64   // of the error of a predicted end: 1 for bounds from above, -1 for bounds from below
	taken   []stretch // by the last call of take
}

func (h *horizon) reset(rest cursor, free int, now, sign float64) {
	h.rest, h.sign, h.planned, h.taken = rest, sign, h.planned[:0], h.taken[:0]
	if free > 0 {
		h.planned = append(h.planned, stretch{now, free})
	}
}

// take takes the n GPUs that are free first, and returns when the last of them is free, or +Inf.
func (h *horizon) take(n int, now float64) (at float64) {
	h.taken = h.taken[:0]
	for n > 0 {
		x, ok := h.rest.get()
		end := x.key
		if !math.IsInf(end, 1) {
			end += h.sign * margin(end, now)
		}
		if len(h.planned) > 0 && (!ok || h.planned[0].at < end) {
			v := &h.planned[0]
			m := min(n, v.n)
			at, n, v.n = max(at, v.at), n-m, v.n-m
			h.taken = append(h.taken, stretch{v.at, m})
			if v.n == 0 {
				h.pop()
			}
			continue
		}
		if !ok {
			return math.Inf(1)
		}
		at, n = max(at, end), n-1
		if last := len(h.taken) - 1; last >= 0 && h.taken[last].at == end {
			h.taken[last].n++
		} else {
			h.taken = append(h.taken, stretch{end, 1})
		}
		h.rest.next()
	}
	return at
}

// undo returns the GPUs that take has taken.
func (h *horizon) undo() {
	for _, v := range h.taken {
		h.give(v.n, v.at)
	}
	h.taken = h.taken[:0]
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

// forecast bounds the plan for the jobs that it has read.
type forecast struct {
	lanes []prospect // by type
	idle  []int      // by type: GPUs that are free now and that the plan has not reserved
	left  int        // sum of idle
}

// prospect is a part of a forecast for one type.
type prospect struct {
	late, early   horizon // bounds from above, from below
	later         bool    // the job may get GPUs of this type later
	least, most   float64 // bounds of its finish then, in s; early counts its GPUs until least
	start, finish float64 // bounds from above, with which late counts its GPUs
}

// outlook is what a forecast says about a job.
type outlook int

const (
	unsure outlook = iota
	waits
	starts
)

// foresee decides without a plan if the result is certain; else known is false. It reads the jobs in the order of the
// plan, and bounds for each type the times at which GPUs are free in the plan. As long as the bounds show what each job
// does, this costs much less than the plan.
func (p *gang) foresee(s *State) (a Action, known bool) {
	if p.queue.all.n > len(s.Up) || p.short || p.left == 0 {
		return Action{}, false
	}
	f := &p.forecast
	if len(f.lanes) != len(p.lanes) {
		f.lanes, f.idle = make([]prospect, len(p.lanes)), make([]int, len(p.lanes))
	}
	f.left = p.left
	for t := range p.lanes {
		l, v := &p.lanes[t], &f.lanes[t]
		if l.ready > 0 {
			return Action{}, false
		}
		f.idle[t] = l.free
		v.late.reset(p.ends.gpus[t].first(), l.free, s.Now, 1)
		v.early.reset(p.ends.gpus[t].first(), l.free, s.Now, -1)
	}
	at := p.queue.all.first()
	for n := 0; ; n++ {
		if f.left == 0 {
			return Action{}, !p.startsInUse(s, at, gangDepth-n)
		}
		x, ok := at.get()
		if !ok {
			return Action{}, true
		}
		best, is := p.outlook(s, x.id)
		switch is {
		case unsure:
			return Action{}, false
		case starts:
			if a, ok := p.start(s, x.id, best); ok {
				return a, true
			}
		}
		at.next()
	}
}

// outlook states what the plan decides about the next job. If the job waits, the forecast then has its reservation.
func (p *gang) outlook(s *State, job int) (now plan, is outlook) {
	f, class := &p.forecast, p.shapes.classOf(job)
	k := &p.shapes.classes[class]
	now = plan{finish: math.Inf(1), start: math.Inf(1), typ: -1, shared: -1}
	if k.mixed || k.apart || p.canShare(s, class) {
		return now, unsure
	}
	steps := s.Remaining[job]
	least, most := math.Inf(1), math.Inf(1) // bounds of the first finish on GPUs that are not free now
	for t := range f.lanes {
		v := &f.lanes[t]
		v.later = false
		packed, spread := p.shapes.speeds(class, t)
		if packed == 0 && spread == 0 {
			continue
		}
		if k.gpus <= f.idle[t] {
			if k.gpus > 1 && p.placer.index.any.most(t) < k.gpus {
				packed = spread
			}
			if packed == 0 {
				continue
			}
			if finish := s.Now + steps/packed; finish < now.finish {
				now = plan{finish, s.Now, t, packed, -1}
			}
			continue
		}
		v.reach(k.gpus, steps, packed, spread, s.Now)
		least, most = min(least, v.least), min(most, v.most)
	}
	if k.gpus > 1 && len(p.lanes) <= maxMixedTypes {
		p.mixtures(s, job, class, f.idle, &now)
	}
	switch {
	case now.finish+margin(now.finish, s.Now) < least:
		is = starts
	case math.IsInf(now.finish, 1) || most+margin(most, s.Now) < now.finish:
		is = waits
	}
	if !f.reserve(k.gpus, is, least, most, s.Now) {
		is = unsure
	}
	return now, is
}

// reach takes n GPUs of the type for a job, and bounds its finish there. Speeds are in steps/s.
func (v *prospect) reach(n int, steps, packed, spread, now float64) {
	if n == 1 {
		spread = packed
	}
	fastest := max(packed, spread)
	v.later, v.most = true, math.Inf(1)
	v.start = v.late.take(n, now)
	if packed > 0 && spread > 0 {
		v.finish = v.start + steps/min(packed, spread)
		v.most = v.finish
	} else { // the job may get no reservation; if it gets one, later jobs wait for its end
		v.finish = v.start + steps/fastest
	}
	v.least = v.early.take(n, now) + steps/fastest
}

// reserve records what the plan reserves for a job that does not start, or nothing. ok is false if it is not known
// whether the plan reserves GPUs that are free now.
func (f *forecast) reserve(n int, is outlook, least, most, now float64) (ok bool) {
	for t := range f.lanes {
		v := &f.lanes[t]
		if !v.later {
			continue
		}
		possible := is == waits && !math.IsInf(v.least, 1) && !(most+margin(most, now) < v.least)
		certain := possible && v.most == most && !math.IsInf(most, 1)
		for u := range f.lanes {
			if o := &f.lanes[u]; u != t && o.later && !(most+margin(most, now) < o.least) {
				certain = false
			}
		}
		if possible && !math.IsInf(v.start, 1) {
			v.late.give(n, v.finish)
		} else if !possible {
			v.late.undo()
		}
		if certain {
			v.early.give(n, v.least)
		} else {
			v.early.undo()
		}
		if f.idle[t] > 0 && possible {
			if !certain {
				return false
			}
			f.left -= f.idle[t]
			f.idle[t] = 0
		}
	}
	return true
}
