package scheduler

import "math"

// certainty is the relative error of times that [gang.allWait] allows for. It is much larger than endPrecision and than
// rounding errors.
const certainty = 1e-9

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
