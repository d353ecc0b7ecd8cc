package scheduler

import "math"

// stretch is a number of GPUs that become free at the same time at the latest.
type stretch struct {
	at float64 // seconds
	n  int
}

// later is an upper bound of the times at which the GPUs of one type become free in a plan: for each n, the n-th GPU is
// free in the plan at this time or earlier. The plan itself may use fewer GPUs, and shorter.
type later struct {
	rest    cursor // GPUs that running jobs use, by their predicted ends
	planned []stretch
	first   int // of planned
	latest  float64
}

// take takes the n GPUs that are free first, and returns when the last of them is free, or +Inf.
func (l *later) take(n int, now float64) (at float64) {
	for n > 0 {
		x, ok := l.rest.get()
		end := x.key + margin(x.key, now)
		if l.first < len(l.planned) && (!ok || l.planned[l.first].at < end) {
			v := &l.planned[l.first]
			m := min(n, v.n)
			at, n, v.n = max(at, v.at), n-m, v.n-m
			if v.n == 0 {
				l.first++
			}
			continue
		}
		if !ok {
			return math.Inf(1)
		}
		at, n = max(at, end), n-1
		l.rest.next()
	}
	return at
}

// give returns n GPUs at a time. The times must not fall, so a GPU may count as busy for longer than it is.
func (l *later) give(n int, at float64) {
	l.latest = max(l.latest, at)
	l.planned = append(l.planned, stretch{l.latest, n})
}

// allWait reports whether certainly no job of the plan starts now. It needs less time than the plan. It reads the jobs
// in the order of the plan, and assumes for each type of which no GPU is free that all jobs wait for it. No job then
// waits longer in the plan. If each job still ends earlier after this wait than on GPUs that are free now, no job
// starts. If allWait returns false, only the plan knows whether a job starts.
func (p *gang) allWait(s *State) bool {
	if p.queue.all.n > len(s.Up) || p.short {
		return false
	}
	if len(p.bounds) != len(p.lanes) {
		p.bounds = make([]later, len(p.lanes))
	}
	busy := false
	for t := range p.lanes {
		b := &p.bounds[t]
		b.planned, b.first, b.latest = b.planned[:0], 0, 0
		b.rest = p.ends.gpus[t].first()
		busy = busy || p.lanes[t].idle() == 0
	}
	if !busy {
		return false
	}
	for at := p.queue.all.first(); ; at.next() {
		x, ok := at.get()
		if !ok {
			return true
		}
		if !p.waits(s, x.id) {
			return false
		}
	}
}

// waits reports whether a job certainly ends earlier on GPUs that are in use than on GPUs that are free now. It then
// takes GPUs of each type in use. It knows nothing about a job that runs only over several machines, because the plan
// may reserve GPUs for it that are free later than the first ones.
func (p *gang) waits(s *State, job int) bool {
	class := p.shapes.classOf(job)
	k := &p.shapes.classes[class]
	if k.mixed || k.apart || p.canShare(s, class) {
		return false
	}
	steps, waiting, now, free := s.Remaining[job], math.Inf(1), math.Inf(1), 0
	for t := range p.lanes {
		packed, spread := p.shapes.speeds(class, t)
		if idle := p.lanes[t].idle(); idle > 0 {
			if free++; free > 1 && k.gpus > 1 {
				return false // a mixed set may be faster
			}
			if fastest := max(packed, spread); idle >= k.gpus && fastest > 0 {
				now = min(now, s.Now+steps/fastest)
			}
			continue
		}
		if k.gpus == 1 {
			spread = packed
		}
		if packed == 0 && spread == 0 {
			continue // the plan reserves no GPU of this type
		}
		b := &p.bounds[t]
		start := b.take(k.gpus, s.Now)
		if math.IsInf(start, 1) {
			continue // nothing is known about this type from here on
		}
		// The plan knows whether the GPUs are on one machine. If the job runs only there, it may get no reservation.
		// But if it gets one, later jobs wait for its end.
		if packed == 0 || spread == 0 {
			b.give(k.gpus, start+steps/max(packed, spread))
			continue
		}
		end := start + steps/min(packed, spread)
		b.give(k.gpus, end)
		waiting = min(waiting, end)
	}
	return now == math.Inf(1) || waiting+margin(waiting, s.Now) < now
}
