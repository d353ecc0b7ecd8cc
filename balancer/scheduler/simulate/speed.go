package simulate

import "math"

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

// network computes the speeds of jobs that span machines.
func (s *Sim) network() {
	st := &s.state
	clear(s.load)
	s.crowded = false
	for _, job := range s.spread {
		if a := &s.stays[job]; a.phase == computing {
			for _, g := range a.gpus {
				s.load[st.Cluster.GPUs[g].Machine] += st.Workload.Jobs[job].Network
			}
		}
	}
	for _, job := range s.spread {
		a := &s.stays[job]
		if a.phase != computing {
			continue
		}
		fraction := 1.0
		if st.Workload.Jobs[job].Network > 0 {
			for _, g := range a.gpus {
				m := st.Cluster.GPUs[g].Machine
				if limit := st.Cluster.Machines[m].Network; s.load[m] > limit { // false if the limit is NaN
					fraction = min(fraction, limit/s.load[m])
				}
			}
		}
		s.pace(job, a.base*fraction)
	}
}
