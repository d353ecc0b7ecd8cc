package scheduler

// reader is a position in one list of a journal.
type reader struct {
	journal *Journal
	at      int
}

// jobs returns the jobs that have changed since the last call. ok is false if the reader must read the whole state.
func (r *reader) jobs(s *State) (list []int, ok bool) {
	if s.Journal == nil {
		r.journal = nil
		return nil, false
	}
	if s.Journal == r.journal {
		list, ok = s.Journal.jobs.since(r.at)
	}
	r.journal, r.at = s.Journal, s.Journal.jobs.end()
	return list, ok
}

// gpus is like jobs, for the GPUs.
func (r *reader) gpus(s *State) (list []int, ok bool) {
	if s.Journal == nil {
		r.journal = nil
		return nil, false
	}
	if s.Journal == r.journal {
		list, ok = s.Journal.gpus.since(r.at)
	}
	r.journal, r.at = s.Journal, s.Journal.gpus.end()
	return list, ok
}

// Find returns the index of a job in Running, or -1 if the job does not run.
func (j *Journal) Find(running []Running, job int) int {
	order := j.order[job]
	low, high := 0, len(running)
	for low < high {
		if mid := (low + high) / 2; running[mid].Order < order {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(running) && running[low].Job == job {
		return low
	}
	return -1
}
