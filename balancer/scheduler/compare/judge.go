package compare

import "github.com/hetero-train/hetero-train/balancer/scheduler"

// shortest is the running time in s below which the bounded slowdown of a job counts as that of a longer job. Without
// this bound, short waits of very short jobs would dominate the mean. 10 s is the usual value of the literature.
const shortest = 10

// Judge adds the fairness, the bounded slowdown and the cost of a run. prices is by type of GPU, for one hour of one
// GPU; nil: unknown. All three are figures of the whole run, not of its steady window.
//
// The speed of a job is its running time alone on its fastest type of GPU, divided by its time from arrival to end. The
// type must have enough GPUs in this cluster. The fairness is Jain's index of these speeds, (sum x)^2 / (n * sum x^2):
// 1 if all jobs are slowed down by the same factor, 1/n if one job gets everything (Jain, Chiu, Hawe: A Quantitative
// Measure of Fairness, 1984).
//
// The bounded slowdown of a job is max(1, time from arrival to end / max(running time, 10 s)) (Feitelson and Rudolph,
// Metrics and Benchmarking for Parallel Job Scheduling, 1998). The figure is the mean over jobs.
//
// Both leave out jobs that no single type of GPU of the cluster can run. The cost contains only GPU time with a job;
// the owner of a cluster also pays for idle GPUs.
func (f *Figures) Judge(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds, prices []float64,
	r *scheduler.Result) {
	var n, sum, squares, slowdown float64
	type shape struct {
		kind, gpus   int
		cpus, memory float64
	}
	speeds := map[shape]float64{} // steps/s on the fastest type
	for i := range w.Jobs {
		j := &w.Jobs[i]
		key := shape{j.Kind, j.GPUs, j.CPUs, j.Memory}
		fastest, known := speeds[key]
		if !known {
			for t := range c.Types {
				fastest = max(fastest, c.EmptySpeed(j, w, s, t))
			}
			speeds[key] = fastest
		}
		if fastest > 0 {
			alone, life := j.Work/fastest, r.Jobs[i].Finish-j.Arrival
			x := alone / life
			n, sum, squares = n+1, sum+x, squares+x*x
			slowdown += max(1, life/max(alone, shortest))
		}
	}
	if squares > 0 {
		index, mean := sum*sum/(n*squares), slowdown/n
		f.Fairness, f.Slowdown = &index, &mean
	}
	if prices == nil {
		return
	}
	cost := 0.0
	for g, hours := range r.GPUHours {
		cost += hours * prices[c.GPUs[g].Type]
	}
	f.Cost = &cost
}
