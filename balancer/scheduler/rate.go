package scheduler

import "math"

// Rate returns the speed in steps/s of a job on GPUs, together with a partner on the same GPUs (-1: no partner). It
// ignores the limits of the network. The speed is 0 if the job does not run on these GPUs.
//
// [Speeds.Shared] gives the speeds within one machine. A pair on several machines is slower by the same factor as the
// job alone.
func (s *State) Rate(job int, gpus []int, partner int) float64 {
	kind, n := s.Workload.Jobs[job].Kind, len(gpus)
	spread := s.Cluster.Spread(gpus)
	if !s.Cluster.Uniform(gpus) {
		if partner >= 0 {
			return 0
		}
		return s.mixed(kind, gpus, spread)
	}
	typ := s.Cluster.GPUs[gpus[0]].Type
	alone := s.Speeds.Alone(kind, typ, n, spread)
	if partner < 0 {
		return alone
	}
	shared, ok := s.Speeds.Shared(kind, s.Workload.Jobs[partner].Kind, typ, n)
	if !ok {
		return 0
	}
	if spread {
		packed := s.Speeds.Alone(kind, typ, n, false)
		if !(packed > 0) {
			return 0
		}
		shared *= alone / packed
	}
	return shared
}

func (s *State) mixed(kind int, gpus []int, spread bool) float64 {
	counts := make([]int, len(s.Cluster.Types))
	for _, g := range gpus {
		counts[s.Cluster.GPUs[g].Type]++
	}
	if speed, ok := s.Speeds.Mixed(kind, counts, spread); ok {
		return speed
	}
	return 0
}

// Left predicts the seconds until a running job frees its GPUs. It uses the current speed of the job, or the speed of
// [State.Rate] while the job loads. Left returns +Inf if the job does not run on these GPUs.
func (s *State) Left(r *Running) float64 {
	if !math.IsInf(r.Leaves, 1) {
		return max(0, r.Leaves-s.Now)
	}
	if r.Speed > 0 {
		return s.Steps(r) / r.Speed
	}
	return max(0, r.Ready-s.Now) + s.Steps(r)/s.Rate(r.Job, r.GPUs, r.Partner)
}
