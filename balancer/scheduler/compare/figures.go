package compare

import (
	"fmt"
	"math"
	"slices"

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

	// Percentiles of the time from arrival to end of a job: the time within which a fraction of the jobs had ended.
	P50 float64 `json:"completion_p50_s"`
	P95 float64 `json:"completion_p95_s"`
	P99 float64 `json:"completion_p99_s"`

	Gangs []Gang `json:"waits"` // by number of GPUs, ascending

	Steady   *Steady  `json:"steady"`           // null: the run has no steady window
	GPUHours float64  `json:"gpu_hours"`        // in which the GPUs had a job
	Fairness *float64 `json:"fairness"`         // Jain's index of the speeds of jobs, see Judge; null: unknown
	Slowdown *float64 `json:"bounded_slowdown"` // mean over jobs, see Judge; null: unknown
	Cost     *float64 `json:"cost"`             // of the GPU hours; null: prices are unknown
}

// Gang contains the waiting times, from arrival to first start, of the jobs with one number of GPUs.
type Gang struct {
	GPUs  int     `json:"gpus"`
	Jobs  int     `json:"jobs"`
	Mean  float64 `json:"mean_s"`
	Worst float64 `json:"worst_s"`
}

// FiguresOf summarizes a run of a workload. A run without jobs is an error. A run with an unfinished job is also an
// error, because the mean completion time would favour a policy that leaves out long jobs.
func FiguresOf(w *scheduler.Workload, r *scheduler.Result) (Figures, error) {
	if len(r.Jobs) == 0 {
		return Figures{}, fmt.Errorf("policy %s: got a run without jobs, want at least 1", r.Policy)
	}
	var f Figures
	lives := make([]float64, 0, len(r.Jobs))
	first, last, unfinished := math.Inf(1), math.Inf(-1), 0
	for i, job := range r.Jobs {
		if math.IsNaN(job.Finish) {
			unfinished++
			continue
		}
		f.Completion += job.Finish - job.Arrival
		f.Wait += job.Start - job.Arrival
		f.Stops += job.Stops
		lives = append(lives, job.Finish-job.Arrival)
		f.Gangs = waited(f.Gangs, Gang{GPUs: w.Jobs[i].GPUs, Jobs: 1, Mean: job.Start - job.Arrival,
			Worst: job.Start - job.Arrival})
		first, last = min(first, job.Arrival), max(last, job.Finish)
	}
	if unfinished > 0 {
		return Figures{}, fmt.Errorf("policy %s: %d of %d jobs did not finish, want a run in which all jobs finish",
			r.Policy, unfinished, len(r.Jobs))
	}
	n := float64(len(r.Jobs))
	f.Completion /= n
	f.Wait /= n
	slices.Sort(lives)
	f.P50, f.P95, f.P99 = percentile(lives, 50), percentile(lives, 95), percentile(lives, 99)
	f.Makespan = last - first
	f.Throughput = n / (f.Makespan / 3600)
	var busy, available float64
	for g := range r.GPUHours {
		busy += r.GPUHours[g]
		available += r.Available[g]
	}
	f.Utilization, f.GPUHours = busy/available, busy
	f.Steady = steady(r)
	return f, nil
}

// waited adds the waits of jobs with one number of GPUs to all.
func waited(all []Gang, g Gang) []Gang {
	at, found := slices.BinarySearchFunc(all, g.GPUs, func(a Gang, gpus int) int { return a.GPUs - gpus })
	if !found {
		return slices.Insert(all, at, g)
	}
	a := &all[at]
	a.Jobs += g.Jobs
	a.Mean += (g.Mean - a.Mean) * float64(g.Jobs) / float64(a.Jobs)
	a.Worst = max(a.Worst, g.Worst)
	return all
}

// percentile returns the least value that is not below p % of the sorted values.
func percentile(sorted []float64, p int) float64 {
	return sorted[(len(sorted)*p+99)/100-1]
}

// jobs returns the number of jobs of a run.
func (f *Figures) jobs() (n int) {
	for _, g := range f.Gangs {
		n += g.Jobs
	}
	return n
}

func completion(f Figures) float64  { return f.Completion }
func throughput(f Figures) float64  { return f.Throughput }
func utilization(f Figures) float64 { return f.Utilization }
func slowdown(f Figures) float64    { return or(f.Slowdown) }

func column(all []Figures, of func(Figures) float64) []float64 {
	out := make([]float64, len(all))
	for i, f := range all {
		out[i] = of(f)
	}
	return out
}

// or returns a figure, or NaN if it is unknown.
func or(figure *float64) float64 {
	if figure == nil {
		return math.NaN()
	}
	return *figure
}

func steadyThroughput(f Figures) float64 {
	return f.inWindow(func(s *Steady) float64 { return s.Throughput })
}

func steadyUtilization(f Figures) float64 {
	return f.inWindow(func(s *Steady) float64 { return s.Utilization })
}

// inWindow returns a figure of the steady window, or NaN.
func (f *Figures) inWindow(of func(*Steady) float64) float64 {
	if f.Steady == nil {
		return math.NaN()
	}
	return of(f.Steady)
}

// Optional returns the figures that may be NaN, in this order: throughput and utilization of the steady window, L /
// (lambda * W), fairness, GPU hours, cost and bounded slowdown.
func (f *Figures) Optional() []float64 {
	return []float64{steadyThroughput(*f), steadyUtilization(*f),
		f.inWindow(func(s *Steady) float64 { return s.Little }), or(f.Fairness), f.GPUHours, or(f.Cost),
		slowdown(*f)}
}
