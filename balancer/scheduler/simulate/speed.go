package simulate

import "math"

// progress moves the anchor of a job to the current time.
func (s *Sim) progress(i int) {
	a, r, now := &s.stays[i], &s.state.Running[i], s.state.Now
	if a.phase != computing {
		return
	}
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
func (s *Sim) pace(i int, speed float64) {
	a, r := &s.stays[i], &s.state.Running[i]
	if a.phase != computing || r.Speed == speed || s.due[i] <= s.state.Now {
		return
	}
	s.progress(i)
	r.Speed = speed
	s.due[i] = a.anchor + a.remaining/speed
}

// network computes the speeds of jobs that span machines.
func (s *Sim) network() {
	st := &s.state
	clear(s.load)
	s.crowded = false
	for i := range s.stays {
		if a := &s.stays[i]; a.spread && a.phase == computing {
			r := &st.Running[i]
			for _, g := range r.GPUs {
				s.load[st.Cluster.GPUs[g].Machine] += st.Workload.Jobs[r.Job].Network
			}
		}
	}
	for i := range s.stays {
		a := &s.stays[i]
		if !a.spread || a.phase != computing {
			continue
		}
		r := &st.Running[i]
		fraction := 1.0
		if st.Workload.Jobs[r.Job].Network > 0 {
			for _, g := range r.GPUs {
				m := st.Cluster.GPUs[g].Machine
				if limit := st.Cluster.Machines[m].Network; s.load[m] > limit { // false if the limit is NaN
					fraction = min(fraction, limit/s.load[m])
				}
			}
		}
		s.pace(i, a.base*fraction)
	}
}
