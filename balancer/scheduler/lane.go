package scheduler

import (
	"fmt"
	"math"
)

// lane lists the times at which the GPUs of one type become free in a plan. It reads only as many GPUs as the plan
// needs.
//
// Each reservation of a plan takes the GPUs that become free first, and needs more GPUs than are free now. After the
// first reservation of a type, all free GPUs of the type are therefore reserved.
type lane struct {
	p     *planner
	typ   int
	free  int    // free GPUs that are not reserved
	ready int    // GPUs of front that are in use and become free now
	front sorted // GPUs that a job or the plan uses, by the time at which they are free
	rest  cursor // further GPUs that a job uses
	edge  float64
	known []promise // by index into shapes.sizes: results of earliest
	turn  int       // number of the plan and of its reservations of the type
	job   int       // job of the last GPU that pull has moved, if no other job uses this GPU; else -1
	end   float64   // predicted end of this job
}

// promise is a result of lane.earliest.
type promise struct {
	turn   int // the result is valid in this turn of the lane
	at     float64
	spread bool
}

// planner predicts when GPUs are free, if jobs get the GPUs that are free first.
type planner struct {
	s       *State
	index   *freeIndex
	ends    *endIndex
	lanes   []lane
	left    int     // GPUs that are free now and that no job of the plan has reserved
	machine []int32 // by GPU
	on      []int32 // by machine: buffer
	touched []int32 // machines
}

func (p *planner) reset(c *Cluster, index *freeIndex, ends *endIndex) {
	*p = planner{index: index, ends: ends, lanes: make([]lane, len(c.Types)), on: make([]int32, len(c.Machines)),
		machine: make([]int32, len(c.GPUs))}
	for g := range c.GPUs {
		p.machine[g] = int32(c.GPUs[g].Machine)
	}
	for t := range p.lanes {
		p.lanes[t].p, p.lanes[t].typ, p.lanes[t].known = p, t, make([]promise, len(index.shapes.sizes))
	}
}

// begin begins a plan. The indices must be in sync with the state.
func (p *planner) begin(s *State) {
	p.s, p.left = s, 0
	p.index.update(s, p.index.any)
	for t := range p.lanes {
		l := &p.lanes[t]
		l.free, l.ready, l.job = p.index.free[t], 0, -1
		l.turn++
		p.left += l.free
		l.front.clear()
		l.rest = p.ends.gpus[t].first()
		l.aim()
		for l.edge <= s.Now && l.pull() {
		}
		for at := l.front.first(); ; at.next() {
			if x, ok := at.get(); !ok || x.key > s.Now {
				break
			}
			l.ready++
		}
	}
}

// aim sets edge: no GPU of rest is free before this time.
func (l *lane) aim() {
	x, ok := l.rest.get()
	switch {
	case !ok:
		l.edge = math.Inf(1)
	case math.IsInf(x.key, 1):
		l.edge = math.MaxFloat64
	default:
		l.edge = x.key - margin(x.key, l.p.s.Now)
	}
}

// pull moves the next GPU from rest to front.
func (l *lane) pull() bool {
	x, ok := l.rest.get()
	if !ok {
		return false
	}
	if on := l.p.s.OnGPU[x.id]; len(on) != 1 {
		l.front.insertEarly(item{key(l.p.ends.until(l.p.s, x.id)), x.id})
	} else {
		if on[0] != l.job { // the GPUs of a job follow one after the other
			l.job, l.end = on[0], key(l.p.ends.until(l.p.s, x.id))
		}
		l.front.insertEarly(item{l.end, x.id})
	}
	l.rest.next()
	l.aim()
	return true
}

// need makes the first n items of front, and all items with the same time as the n-th, final; ok is false if there are
// too few.
func (l *lane) need(n int) bool {
	for l.front.n < n || !(l.front.at(n-1).key < l.edge) {
		if !l.pull() {
			return l.front.n >= n
		}
	}
	return true
}

// earliest returns the time at which n GPUs of the type are free in the plan, and whether they are on several machines.
// It prefers GPUs of one machine, unless GPUs of several machines are free earlier. The method reserve may still take
// GPUs of other machines. size is the index of n in shapes.sizes.
func (l *lane) earliest(n, size int) (at float64, spread bool) {
	k := &l.known[size]
	if k.turn != l.turn {
		at, spread = l.find(n)
		*k = promise{l.turn, at, spread}
	}
	return k.at, k.spread
}

func (l *lane) find(n int) (at float64, spread bool) {
	now := l.p.s.Now
	if n <= l.free && l.ready == 0 {
		return now, n > 1 && l.p.index.any.most(l.typ) < n
	}
	at = now
	if n > l.free {
		if !l.need(n - l.free) {
			return math.Inf(1), true
		}
		if at = l.front.at(n - l.free - 1).key; math.IsInf(at, 1) {
			return at, true
		}
	}
	return at, n > 1 && !l.together(n, at)
}

// apart returns the time at which n GPUs of the type, on several machines, are free in the plan.
func (l *lane) apart(n int) (at float64) {
	p, count, first, several := l.p, 0, int32(-1), false
	enough := func(g int) bool {
		count++
		if m := p.machine[g]; first < 0 {
			first = m
		} else {
			several = several || m != first
		}
		return several && count >= n
	}
	if l.free > 0 {
		free := p.index.is[l.typ]
		for g := free.next(0); g >= 0; g = free.next(g + 1) {
			if enough(g) {
				return p.s.Now
			}
		}
	}
	for k := 0; l.need(k + 1); k++ {
		if x := l.front.at(k); enough(x.id) {
			return x.key
		}
	}
	return math.Inf(1)
}

// together reports whether n GPUs of one machine are free at a time.
func (l *lane) together(n int, at float64) bool {
	p := l.p
	found := l.count(n, at)
	for _, m := range p.touched {
		p.on[m] = 0
	}
	p.touched = p.touched[:0]
	return found
}

// count counts in p.on the GPUs of each machine that are free at a time, until a machine has n.
func (l *lane) count(n int, at float64) bool {
	p := l.p
	if l.free > 0 {
		free := p.index.is[l.typ]
		for g := free.next(0); g >= 0; g = free.next(g + 1) {
			if p.add(g) >= n {
				return true
			}
		}
	}
	for c := l.front.first(); ; c.next() {
		x, ok := c.get()
		if !ok || x.key > at {
			return false
		}
		if p.add(x.id) >= n {
			return true
		}
	}
}

// add counts a GPU of a machine.
func (p *planner) add(g int) int {
	m := p.machine[g]
	if p.on[m] == 0 {
		p.touched = append(p.touched, m)
	}
	p.on[m]++
	return int(p.on[m])
}

// idle returns the number of GPUs that are free now in the plan.
func (l *lane) idle() int { return l.free + l.ready }

// reserve takes the n GPUs of the type that are free first, on any machines. It may thus reserve GPUs of several
// machines for a job whose finish time was predicted for one machine. The plan then predicts a finish time that is too
// early. Each decision makes a new plan, so the next event corrects such an error.
//
// n must be larger than the number of GPUs of the type that are free now in the plan: see lane. This is true if
// earliest returns a time after now for n. It need not be true for a time that apart returns.
func (l *lane) reserve(n int, until float64) {
	if n <= l.idle() {
		panic(fmt.Sprintf("scheduler: a plan reserves %d GPUs of a type, but want more than the %d that are free now",
			n, l.idle()))
	}
	l.turn++
	g := -1
	if l.free > 0 {
		g = l.p.index.is[l.typ].next(0)
	}
	for range n {
		first := item{l.p.s.Now, g}
		if l.need(1) {
			if x := l.front.at(0); g < 0 || x.before(first) {
				first = x
			}
		}
		switch {
		case first.id < 0:
			return
		case first.id == g:
			l.free--
			if g = -1; l.free > 0 {
				g = l.p.index.is[l.typ].next(first.id + 1)
			}
		default:
			l.front.pop()
			if first.key <= l.p.s.Now {
				l.ready--
			}
		}
		if first.key <= l.p.s.Now {
			l.p.left--
		}
		l.front.insert(item{until, first.id})
	}
}
