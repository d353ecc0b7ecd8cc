package features

import "github.com/hetero-train/hetero-train/balancer/scheduler"

// Value is a fact of one GPU or job.
type Value struct {
	Name       string
	Unit       string
	Raw        float64 // NaN if unknown
	Normalised float64 // between 0 and 1; NaN if Raw is NaN
}

// GPU returns the facts of a GPU that do not depend on a state, for printing.
func (r *Ranges) GPU(c *scheduler.Cluster, gpu int) []Value {
	var raw [factCount]float64
	gpuStatic(&raw, c, gpu)
	return r.values(&raw, gpuUtilization, gpuTemperature, gpuMemory, gpuBandwidth, gpuCompute, gpuNetwork)
}

// Job returns the facts of a job that do not depend on a state, for printing.
func (r *Ranges) Job(w *scheduler.Workload, job int) []Value {
	var raw [factCount]float64
	jobStatic(&raw, w, job)
	return r.values(&raw, jobPriority, jobSimulation, jobLearning, jobProcessing, jobGPUs, jobCPUs, jobMemory,
		jobNetwork, jobGPUMemory, jobWork)
}

func (r *Ranges) values(raw *[factCount]float64, list ...int) []Value {
	out := make([]Value, len(list))
	for i, f := range list {
		out[i] = Value{facts[f].Name, facts[f].Unit, raw[f], r.ranges[f].Normalise(raw[f])}
	}
	return out
}
