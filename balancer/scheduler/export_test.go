package scheduler

// Shadow returns the start of each job that policy easy has started next to a policy of [Limit], in s, and -1 for the
// other jobs. No GPU may have failed.
func Shadow(p Policy) []float64 {
	v := p.(*bounded).shadow
	starts := make([]float64, len(v.runs))
	for job := range v.runs {
		if starts[job] = -1; v.runs[job].started {
			starts[job] = v.runs[job].since
		}
	}
	return starts
}

// Promise returns the job that became overdue first under a policy of [Limit] that has just decided, and the latest
// time of its start, in s. head is -1 if no job is overdue.
func Promise(p Policy, s *State) (head int, at float64) {
	b := p.(*bounded)
	if b.head < 0 {
		return -1, 0
	}
	b.count(s)
	if _, _, ok := b.fastest(s, b.head); ok {
		return b.head, s.Now
	}
	return b.head, s.Now + b.reserve(s, b.head)
}

// Due returns the time at which a job became overdue, in s, or +Inf.
func Due(p Policy, job int) float64 { return p.(*bounded).due[job] }
