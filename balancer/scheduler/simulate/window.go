package simulate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// observe sets the bounds of the steady window when their jobs have arrived. It takes constant time, except at the two
// bounds.
func (s *Sim) observe() {
	jobs, arrived := len(s.state.Workload.Jobs), s.state.Arrived
	if math.IsNaN(s.marks.from.at) && arrived > scheduler.WarmUp(jobs) {
		s.marks.from = s.totals()
	}
	if math.IsNaN(s.marks.to.at) && arrived == jobs && jobs > 0 {
		s.marks.to = s.totals()
	}
}

// totals sums the GPU time up to now.
func (s *Sim) totals() mark {
	m := mark{at: s.state.Now}
	for g := range s.state.Up {
		busy, up := s.seconds(g)
		m.busy, m.available = m.busy+busy, m.available+up
	}
	return m
}

// seconds returns for how long a GPU has had a job, and for how long it was available.
func (s *Sim) seconds(g int) (busy, up float64) {
	busy, up = s.busy[g], s.up[g]
	if !math.IsNaN(s.busySince[g]) {
		busy += s.state.Now - s.busySince[g]
	}
	if !math.IsNaN(s.upSince[g]) {
		up += s.state.Now - s.upSince[g]
	}
	return busy, up
}

// window returns the steady window, or nil if the run did not reach its end or all jobs of it arrive at one time.
func (s *Sim) window() *scheduler.Window {
	from, to := s.marks.from, s.marks.to
	if !(to.at > from.at) {
		return nil
	}
	return &scheduler.Window{From: from.at, To: to.at, Busy: to.busy - from.busy,
		Available: to.available - from.available}
}
