package simulate

// enqueue puts a job into the queue, which is in the order of arrival.
func (s *Sim) enqueue(job int) {
	st := &s.state
	n := len(st.Queue)
	if cap(st.Queue) == n { // removals moved the queue to the end of its buffer
		copy(s.queue, st.Queue)
		st.Queue = s.queue[:n]
	}
	i := search(st.Queue, job)
	st.Queue = append(st.Queue, job)
	copy(st.Queue[i+1:], st.Queue[i:n])
	st.Queue[i] = job
	s.journal.Job(job)
}

// dequeue removes a job, and reports whether it was in the queue.
func (s *Sim) dequeue(job int) bool {
	q := s.state.Queue
	i := search(q, job)
	if i == len(q) || q[i] != job {
		return false
	}
	s.journal.Job(job)
	if i < len(q)/2 {
		copy(q[1:i+1], q[:i])
		s.state.Queue = q[1:]
	} else {
		copy(q[i:], q[i+1:])
		s.state.Queue = q[:len(q)-1]
	}
	return true
}

// find returns the index of a running job, or -1 if the job does not run.
func (s *Sim) find(job int) int { return s.journal.Find(s.state.Running, job) }
