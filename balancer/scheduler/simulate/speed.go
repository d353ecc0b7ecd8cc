package simulate

import (
	"math"
	"slices"
)

// progress moves the anchor of a job to the current time.
func (s *Sim) progress(job int) {
	a, now := &s.stays[job], s.state.Now
	if a.phase != computing {
		return
	}
	r := &s.state.Running[s.find(job)]
	if every := s.options.Checkpoint; every > 0 {
		// The last checkpoint in (anchor, now]. Checkpoints are at Ready + k * every.
		if at := r.Ready + every*math.Floor((now-r.Ready)/every); at > a.anchor {
			a.saved = max(0, a.remaining-r.Speed*(at-a.anchor))
		}
	}
	a.remaining = max(0, a.remaining-r.Speed*(now-a.anchor))
	a.anchor = now
	r.Remaining = a.remaining
	s.state.Remaining[r.Job] = a.remaining
}

// pace changes the speed of a job from now on.
func (s *Sim) pace(job int, speed float64) {
	a := &s.stays[job]
	if a.phase != computing || a.speed == speed || s.agenda.at[job] <= s.state.Now {
		return
	}
	s.progress(job)
	s.setSpeed(job, speed)
	s.agenda.set(job, a.anchor+a.remaining/speed)
}

// setSpeed sets the speed of a running job.
func (s *Sim) setSpeed(job int, speed float64) {
	s.stays[job].speed = speed
	s.state.Running[s.find(job)].Speed = speed
	s.journal.Job(job)
}

// touch records a change of a running job.
func (s *Sim) touch(job int) {
	a, v := &s.stays[job], &s.traffic
	if !a.spread {
		return
	}
	for _, g := range a.gpus {
		if m := s.state.Cluster.GPUs[g].Machine; !v.is[m] {
			v.changed, v.is[m] = append(v.changed, m), true
		}
	}
}

// send adds a job that spans machines to the network, or removes it.
func (s *Sim) send(job int, adds bool) {
	last := -1
	for _, g := range s.stays[job].gpus { // the GPUs of a machine need not follow one after the other
		m := s.state.Cluster.GPUs[g].Machine
		list := &s.traffic.jobs[m]
		switch n := len(*list); {
		case m == last:
		case !adds:
			*list = slices.DeleteFunc(*list, func(other int) bool { return other == job })
		case n == 0 || (*list)[n-1] != job:
			*list = append(*list, job)
		}
		last = m
	}
}

// network computes the speeds of the jobs that use the network of a machine whose load has changed.
func (s *Sim) network() {
	st, v := &s.state, &s.traffic
	for _, m := range v.changed {
		v.load[m], v.is[m] = 0, false
		for _, job := range v.jobs[m] {
			a := &s.stays[job]
			if a.phase != computing {
				continue
			}
			s.ready.push(s.journal.Order(job), job)
			for _, g := range a.gpus {
				if st.Cluster.GPUs[g].Machine == m {
					v.load[m] += st.Workload.Jobs[job].Network
				}
			}
		}
	}
	v.changed = v.changed[:0]
	for len(s.ready) > 0 {
		s.limit(s.ready.pop())
	}
}

// limit sets the speed of a job that computes on several machines.
func (s *Sim) limit(job int) {
	a, c := &s.stays[job], s.state.Cluster
	fraction := 1.0
	if s.state.Workload.Jobs[job].Network > 0 {
		for _, g := range a.gpus {
			m := c.GPUs[g].Machine
			if limit := c.Machines[m].Network; s.traffic.load[m] > limit { // false if the limit is NaN
				fraction = min(fraction, limit/s.traffic.load[m])
			}
		}
	}
	s.pace(job, a.base*fraction)
}
