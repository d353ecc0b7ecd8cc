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

// certainty is the relative error of times that [gang.allWait] allows for. It is much larger than endPrecision and than
// rounding errors.
const certainty = 1e-9

// outlook has what [gang.allWait] knows about one type of GPU. "For each second" means: for each second of GPU time
// that the job needs on its fastest type.
type outlook struct {
	horizon
	idle  int       // GPUs that are free now and that the plan has not reserved
	later bool      // some job needs more GPUs than these
	hold  []float64 // by class: the longest time for which a job holds its GPUs, for each second; 0: it runs elsewhere
	gain  []float64 // by class: the longest time for which a job waits for GPUs of this type, for each second
}

func (p *gang) resetOutlooks() {
	classes := p.shapes.classes
	p.starts, p.outlooks = make([]bool, len(classes)), make([]outlook, p.shapes.types)
	for t := range p.outlooks {
		v := &p.outlooks[t]
		v.hold, v.gain = make([]float64, len(classes)), make([]float64, len(classes))
		for class := range classes {
			packed, spread := p.shapes.speeds(class, t)
			if packed == 0 || spread > 0 && spread < packed && classes[class].gpus > 1 {
				packed = spread
			}
			if packed > 0 {
				v.hold[class] = 1 / packed / p.keys[class]
			}
		}
	}
}

// allWait reports whether it is certain that the plan starts no job. The plan then need not be made, which would cost
// much more. It is certain for a job if bounds show that the job finishes earlier on GPUs that are in use than on those
// that are free now.
//
// In the bounds, each job takes GPUs of each type on which it runs, and holds them for the longest time. In the plan,
// it takes GPUs of one type at most. As all jobs take those GPUs that are free first, no GPU is free later in the plan
// than in the bounds.
func (p *gang) allWait(s *State) bool {
	if p.queue.all.n > len(s.Up) && !p.short { // GPUs that the plan leaves free get further jobs
		return false
	}
	if p.left == 0 { // then the plan ends early, and asks few jobs whether they can share GPUs
		return false
	}
	most := 0
	for _, class := range p.queue.active {
		k := &p.shapes.classes[class]
		if k.mixed || k.apart || p.canShare(s, class) {
			return false
		}
		most = max(most, k.gpus)
	}
	for t := range p.lanes {
		l, v := &p.lanes[t], &p.outlooks[t]
		if l.ready > 0 {
			return false
		}
		if v.idle, v.later = l.free, l.free < most; v.later {
			last := p.ends.gpus[t].last()
			if x, ok := last.get(); ok && math.IsInf(x.key, 1) { // a job without progress, which the bounds do not know
				return false
			}
			v.reset(&p.ends.gpus[t], l.free, s.Now)
		}
	}
	if !p.compare(s) {
		return true
	}
	for at := p.queue.all.first(); ; at.next() {
		x, ok := at.get()
		if !ok {
			return true
		}
		class := p.shapes.classOf(x.id)
		n, waits, reserved := p.shapes.classes[class].gpus, !p.starts[class], -1
		for t := range p.outlooks {
			v := &p.outlooks[t]
			if !v.later || v.hold[class] == 0 {
				continue
			}
			begins := v.take(n)
			if math.IsInf(begins, 1) {
				continue
			}
			wait := begins - s.Now + certainty*math.Abs(s.Now)
			waits = waits || wait < x.key*v.gain[class]
			if v.idle > 0 && n > v.idle && wait < x.key*p.gain(class, t, p.fastestElsewhere(s, class, t)) {
				reserved = t
			}
			v.give(n, begins+x.key*v.hold[class])
		}
		if !waits {
			return false
		}
		if reserved >= 0 {
			p.outlooks[reserved].idle = 0
			if !p.compare(s) {
				return true
			}
		}
	}
}

// compare sets what jobs of each class gain if they do not use GPUs that are free now. It reports whether some job can
// use them.
func (p *gang) compare(s *State) (some bool) {
	for _, class := range p.queue.active {
		now := p.fastestNow(s, class)
		p.starts[class] = now > 0
		some = some || now > 0
		for t := range p.outlooks {
			p.outlooks[t].gain[class] = p.gain(class, t, now)
		}
	}
	return some
}

// fastestNow returns the largest speed of jobs of a class on GPUs that are free now, in steps/s.
func (p *gang) fastestNow(s *State, class int) (speed float64) {
	n := p.shapes.classes[class].gpus
	for t := range p.outlooks {
		if n > p.outlooks[t].idle {
			continue
		}
		packed, spread := p.shapes.speeds(class, t)
		if n > 1 && p.placer.index.any.most(t) < n {
			packed = spread
		}
		speed = max(speed, packed)
	}
	return max(speed, p.fastestMixed(s, class))
}

// fastestElsewhere returns a speed that no job of a class exceeds without GPUs of a type, in steps/s.
func (p *gang) fastestElsewhere(s *State, class, except int) (speed float64) {
	n := p.shapes.classes[class].gpus
	for t := range p.outlooks {
		if v := &p.outlooks[t]; t != except && !(v.later && v.gpus < n) {
			packed, spread := p.shapes.speeds(class, t)
			speed = max(speed, packed, spread)
		}
	}
	return max(speed, p.fastestMixed(s, class))
}

// fastestMixed returns the largest speed of jobs of a class on mixed sets of GPUs that are free now, in steps/s.
func (p *gang) fastestMixed(s *State, class int) (speed float64) {
	if p.shapes.classes[class].gpus == 1 || len(p.outlooks) == 1 || len(p.outlooks) > maxMixedTypes {
		return 0
	}
	for t := range p.outlooks {
		p.idles[t] = p.outlooks[t].idle
	}
	for _, set := range p.mixedSets(s, class, p.idles) {
		speed = max(speed, set.speed)
	}
	return speed
}

// gain returns the longest time for which a job of a class waits for GPUs of a type if it otherwise has a speed in
// steps/s, for each second. It is at most 0 if the job does not wait.
func (p *gang) gain(class, typ int, speed float64) float64 {
	n := p.shapes.classes[class].gpus
	if packed, spread := p.shapes.speeds(class, typ); packed == 0 || spread == 0 && n > 1 || n <= p.outlooks[typ].idle {
		return 0
	}
	return (1-certainty)/(speed*p.keys[class]) - (1+certainty)*p.outlooks[typ].hold[class]
}
