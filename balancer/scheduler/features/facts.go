package features

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Fact is a number that describes a cluster, a GPU or a job.
type Fact struct {
	Name  string // such as "gpu.memory"; the part before the point is "cluster", "gpu" or "job"
	Unit  string // "" for fractions and numbers of things
	About string // description
	Range Range  // the default
}

// Range defines how a fact is normalised.
type Range struct {
	Low  float64 // becomes 0
	High float64 // becomes 1
	Log  bool    // logarithmic scale; Low is above 0
}

// Normalise returns the normalised value, between 0 and 1. NaN stays NaN.
func (r Range) Normalise(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x <= r.Low:
		return 0
	case x >= r.High:
		return 1
	case r.Log:
		return math.Log(x/r.Low) / math.Log(r.High/r.Low)
	}
	return x/(r.High-r.Low) - r.Low/(r.High-r.Low) // without overflow
}

// Indices of the facts.
const (
	clusterQueue = iota
	clusterWork
	clusterRunning
	clusterUp
	clusterOccupancy

	gpuUp
	gpuOccupancy
	gpuUtilization
	gpuTemperature
	gpuMemory
	gpuBandwidth
	gpuCompute
	gpuNetwork
	gpuFreeCPUs
	gpuFreeMemory
	gpuBusyFor

	jobWaited
	jobPriority
	jobSimulation
	jobLearning
	jobProcessing
	jobGPUs
	jobCPUs
	jobMemory
	jobNetwork
	jobGPUMemory
	jobWork
	jobRunningTime

	factCount
)

// First facts, and numbers of facts, of GPUs and of jobs.
const (
	firstGPU     = gpuUp
	firstJob     = jobWaited
	clusterFacts = firstGPU
	gpuFacts     = firstJob - firstGPU
	jobFacts     = factCount - firstJob
)

var fraction = Range{0, 1, false}

const gib = 1 << 30

// Numbers of features of a vector: of the cluster, of each GPU, and of each job.
const (
	PerCluster = clusterFacts
	PerGPU     = gpuFacts
	PerJob     = jobFacts
)

// Places of the measured facts among the features of a GPU. A simulated cluster has no measurements.
const (
	PlaceUtilization = gpuUtilization - firstGPU
	PlaceTemperature = gpuTemperature - firstGPU
)

// facts lists all facts. The default ranges are for machines of 2016 to 2026 and jobs of seconds to weeks.
var facts = [factCount]Fact{
	clusterQueue: {"cluster.queue", "jobs", "waiting jobs", Range{0.5, 1000, true}},
	clusterWork: {"cluster.work", "s",
		"running time of the waiting jobs on their fastest GPUs, per GPU of the cluster", Range{1, 1e6, true}},
	clusterRunning: {"cluster.running", "jobs", "running jobs per GPU of the cluster",
		Range{0, scheduler.MaxSharing, false}},
	clusterUp:        {"cluster.up", "", "fraction of the GPUs that are available", fraction},
	clusterOccupancy: {"cluster.occupancy", "", "fraction of the available GPUs that have a job", fraction},

	gpuUp:          {"gpu.up", "", "1 if the GPU is available, else 0", fraction},
	gpuOccupancy:   {"gpu.occupancy", "", "jobs on the GPU, relative to the largest possible number", fraction},
	gpuUtilization: {"gpu.utilization", "", "measured utilization", fraction},
	gpuTemperature: {"gpu.temperature", "C", "measured temperature", Range{20, 95, false}},
	gpuMemory:      {"gpu.memory", "bytes", "device memory", Range{4 * gib, 288 * gib, true}},
	gpuBandwidth:   {"gpu.bandwidth", "bytes/s", "bandwidth of device memory", Range{1e11, 1e13, true}},
	gpuCompute:     {"gpu.compute", "FLOP/s", "peak arithmetic", Range{1e12, 1e16, true}},
	gpuNetwork:     {"gpu.network", "bytes/s", "network link of the machine", Range{1e8, 1e11, true}},
	gpuFreeCPUs:    {"gpu.free_cpus", "", "free fraction of the machine's CPU cores", fraction},
	gpuFreeMemory:  {"gpu.free_memory", "", "free fraction of the machine's memory", fraction},
	gpuBusyFor: {"gpu.busy_for", "s", "time until the jobs on the GPU finish at their current speeds",
		Range{1, 1e6, true}},

	jobWaited:     {"job.waited", "s", "time since the arrival of the job", Range{1, 1e6, true}},
	jobPriority:   {"job.priority", "", "priority", fraction},
	jobSimulation: {"job.simulation", "", "1 for class simulation, else 0", fraction},
	jobLearning:   {"job.learning", "", "1 for class learning, else 0", fraction},
	jobProcessing: {"job.processing", "", "1 for class processing, else 0", fraction},
	jobGPUs:       {"job.gpus", "GPUs", "GPUs that the job needs", Range{1, 64, true}},
	jobCPUs:       {"job.cpus", "cores", "CPU cores for each GPU", Range{0.5, 64, true}},
	jobMemory:     {"job.memory", "bytes", "host memory for each GPU", Range{gib / 4, 512 * gib, true}},
	jobNetwork: {"job.network", "bytes/s", "traffic of each GPU while the job spans machines",
		Range{1e7, 1e11, true}},
	jobGPUMemory: {"job.gpu_memory", "bytes", "device memory on each GPU", Range{gib / 2, 288 * gib, true}},
	jobWork:      {"job.work", "steps", "remaining steps", Range{1, 1e8, true}},
	jobRunningTime: {"job.running_time", "s", "remaining running time alone on the fastest GPUs of the job",
		Range{1, 1e6, true}},
}

// gpuStatic writes the facts of a GPU that do not depend on a state.
func gpuStatic(raw *[factCount]float64, c *scheduler.Cluster, gpu int) {
	g := &c.GPUs[gpu]
	t := &c.Types[g.Type]
	raw[gpuUtilization], raw[gpuTemperature] = g.Utilization, g.Temperature
	raw[gpuMemory], raw[gpuBandwidth], raw[gpuCompute] = t.Memory, t.Bandwidth, t.Compute
	raw[gpuNetwork] = c.Machines[g.Machine].Network
}

// jobStatic writes the facts of a job that do not depend on a state.
func jobStatic(raw *[factCount]float64, w *scheduler.Workload, job int) {
	j := &w.Jobs[job]
	k := &w.Kinds[j.Kind]
	raw[jobPriority], raw[jobGPUs], raw[jobCPUs] = j.Priority, float64(j.GPUs), j.CPUs
	raw[jobMemory], raw[jobNetwork], raw[jobGPUMemory] = j.Memory, j.Network, k.GPUMemory
	raw[jobSimulation], raw[jobLearning], raw[jobProcessing] = 0, 0, 0
	switch k.Class {
	case scheduler.Simulation:
		raw[jobSimulation] = 1
	case scheduler.Learning:
		raw[jobLearning] = 1
	case scheduler.Processing:
		raw[jobProcessing] = 1
	}
	raw[jobWork] = j.Work
}
