package compare

import "github.com/hetero-train/hetero-train/balancer/scheduler"

// Steady contains the figures of the steady window of a run ([scheduler.Window]). The throughput and the utilization of
// a whole run depend on its length, because the cluster fills at its beginning and empties at its end.
type Steady struct {
	From        float64 `json:"from_s"`
	To          float64 `json:"to_s"`
	Throughput  float64 `json:"throughput_jobs_per_h"` // jobs that end in the window
	Utilization float64 `json:"utilization"`
	// Little's law: in a steady state, the mean number of jobs L is lambda * W. The reverse does not hold: a queue that
	// grows and then shrinks within the window can have a ratio of 1. Below 1, the queue grows during the window; above
	// 1, it shrinks.
	Jobs     float64 `json:"little_l_jobs"`            // mean number of jobs that wait or run
	Arrivals float64 `json:"little_lambda_jobs_per_s"` // arrivals in the window
	Time     float64 `json:"little_w_s"`               // mean time from arrival to end of these jobs
	Little   float64 `json:"little_l_over_lambda_times_w"`
}

// steady returns the figures of the steady window, or nil if the run has none.
func steady(r *scheduler.Result) *Steady {
	w := r.Window
	if w == nil || !(w.Available > 0) {
		return nil
	}
	s := &Steady{From: w.From, To: w.To, Utilization: w.Busy / w.Available}
	length := w.To - w.From
	ended, arrived := 0, 0
	for _, job := range r.Jobs {
		if job.Finish > w.From && job.Finish <= w.To {
			ended++
		}
		if job.Arrival > w.From && job.Arrival <= w.To {
			arrived++
			s.Time += job.Finish - job.Arrival
		}
		s.Jobs += max(0, min(job.Finish, w.To)-max(job.Arrival, w.From))
	}
	s.Throughput, s.Jobs = float64(ended)/length*3600, s.Jobs/length
	s.Arrivals, s.Time = float64(arrived)/length, s.Time/float64(arrived) // the last job arrives in the window
	s.Little = s.Jobs / (s.Arrivals * s.Time)
	return s
}
