package compare

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Figures are the results of one run.
type Figures struct {
	Completion  float64 `json:"completion_s"`          // mean time from arrival to end of a job
	Throughput  float64 `json:"throughput_jobs_per_h"` // finished jobs per hour
	Utilization float64 `json:"utilization"`           // fraction of the available GPU time in which the GPUs had a job
	Wait        float64 `json:"wait_s"`                // mean time from arrival to first start
	Makespan    float64 `json:"makespan_s"`            // from the first arrival to the last end
	Stops       int     `json:"stops"`                 // times that a job was stopped or failed
}

// FiguresOf summarizes a run. A run without jobs is an error. A run with an unfinished job is also an error, because
// the mean completion time would favour a policy that leaves out long jobs.
func FiguresOf(r *scheduler.Result) (Figures, error) {
	if len(r.Jobs) == 0 {
		return Figures{}, fmt.Errorf("policy %s: got a run without jobs, want at least 1", r.Policy)
	}
	var f Figures
	first, last, unfinished := math.Inf(1), math.Inf(-1), 0
	for _, job := range r.Jobs {
		if math.IsNaN(job.Finish) {
			unfinished++
			continue
		}
		f.Completion += job.Finish - job.Arrival
		f.Wait += job.Start - job.Arrival
		f.Stops += job.Stops
		first, last = min(first, job.Arrival), max(last, job.Finish)
	}
	if unfinished > 0 {
		return Figures{}, fmt.Errorf("policy %s: %d of %d jobs did not finish, want a run in which all jobs finish", r.Policy, unfinished, len(r.Jobs))
	}
	n := float64(len(r.Jobs))
	f.Completion /= n
	f.Wait /= n
	f.Makespan = last - first
	f.Throughput = n / (f.Makespan / 3600)
	var busy, available float64
	for g := range r.GPUHours {
		busy += r.GPUHours[g]
		available += r.Available[g]
	}
	f.Utilization = busy / available
	return f, nil
}
