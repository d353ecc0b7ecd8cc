package features

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Options configure an [Extractor].
type Options struct {
	Jobs   int     // number of job slots, for the first jobs of the queue
	GPUs   int     // number of GPU slots; a cluster with more GPUs is an error
	Ranges *Ranges // nil: DefaultRanges
}

// Extractor makes vectors of features. It is not safe for concurrent use.
type Extractor struct {
	options Options
	ranges  *Ranges
	names   []string

	cluster  *scheduler.Cluster
	workload *scheduler.Workload
	order    []int     // GPUs, in the order of their slots
	best     []float64 // by job: steps/s on its fastest type; 0 if it runs on none
	busy     []float64 // by GPU: s
	raw      [factCount]float64

	// Features that do not depend on the state, by GPU and by job. Most of the logarithms are here.
	gpuValues, gpuMask []float32
	jobValues, jobMask []float32
}

// New returns an extractor. The size of its vectors does not depend on the cluster.
func New(o Options) (*Extractor, error) {
	const most = 1 << 16
	if o.Jobs < 0 || o.Jobs > most || o.GPUs < 1 || o.GPUs > most {
		return nil, fmt.Errorf("features: got places for %d jobs and %d GPUs, want 0 to %d and 1 to %d", o.Jobs, o.GPUs,
			most, most)
	}
	if o.Ranges == nil {
		o.Ranges = DefaultRanges()
	}
	x := &Extractor{options: o, ranges: o.Ranges}
	for _, f := range facts[:firstGPU] {
		x.names = append(x.names, f.Name)
	}
	for i := range o.GPUs {
		for _, f := range facts[firstGPU:firstJob] {
			x.names = append(x.names, fmt.Sprintf("gpu[%d].%s", i, f.Name[len("gpu."):]))
		}
	}
	for i := range o.Jobs {
		for _, f := range facts[firstJob:] {
			x.names = append(x.names, fmt.Sprintf("job[%d].%s", i, f.Name[len("job."):]))
		}
	}
	return x, nil
}

// Names returns the name of each feature. The caller must not change the list.
func (x *Extractor) Names() []string { return x.names }

// Size returns the number of features.
func (x *Extractor) Size() int { return len(x.names) }

// Reset prepares for states of a cluster and a workload.
func (x *Extractor) Reset(c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds) error {
	if len(c.GPUs) > x.options.GPUs {
		return fmt.Errorf(
			"features: got a cluster with %d GPUs, want at most %d, the number of GPU places of the vector",
			len(c.GPUs), x.options.GPUs)
	}
	x.cluster, x.workload = c, w
	x.order = x.order[:0]
	for m := range c.Machines {
		x.order = append(x.order, c.Machines[m].GPUs...)
	}
	if len(x.order) != len(c.GPUs) {
		return fmt.Errorf("features: the machines list %d GPUs, want all %d GPUs of the cluster", len(x.order),
			len(c.GPUs))
	}
	x.busy = append(x.busy[:0], make([]float64, len(c.GPUs))...)
	x.best = append(x.best[:0], make([]float64, len(w.Jobs))...)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		for t := range c.Types {
			x.best[i] = max(x.best[i], speeds.Alone(j.Kind, t, j.GPUs, false), speeds.Alone(j.Kind, t, j.GPUs, true))
		}
	}
	x.fixed()
	return nil
}

// fixed normalises the facts of all GPUs and jobs that do not depend on a state.
func (x *Extractor) fixed() {
	x.gpuValues, x.gpuMask = zeros(x.gpuValues, len(x.cluster.GPUs)*gpuFacts),
		zeros(x.gpuMask, len(x.cluster.GPUs)*gpuFacts)
	for gpu := range x.cluster.GPUs {
		at := gpu * gpuFacts
		gpuStatic(&x.raw, x.cluster, gpu)
		for _, f := range []int{gpuUtilization, gpuTemperature, gpuMemory, gpuBandwidth, gpuCompute, gpuNetwork} {
			x.put(x.gpuValues[at:], x.gpuMask[at:], f-firstGPU, f)
		}
	}
	x.jobValues, x.jobMask = zeros(x.jobValues, len(x.workload.Jobs)*jobFacts),
		zeros(x.jobMask, len(x.workload.Jobs)*jobFacts)
	for job := range x.workload.Jobs {
		at := job * jobFacts
		jobStatic(&x.raw, x.workload, job)
		for f := jobPriority; f <= jobGPUMemory; f++ {
			x.put(x.jobValues[at:], x.jobMask[at:], f-firstJob, f)
		}
	}
}

func zeros(list []float32, n int) []float32 {
	list = slices.Grow(list[:0], n)[:n]
	clear(list)
	return list
}

// put normalises a fact of x.raw.
func (x *Extractor) put(values, mask []float32, at, f int) {
	if v := x.ranges.ranges[f].Normalise(x.raw[f]); !math.IsNaN(v) {
		values[at], mask[at] = float32(v), 1
	}
}

// Fill writes the features of a state: values between 0 and 1, and mask 1 for known features, else 0. Both slices have
// Size elements. The state must be of the cluster and the workload of Reset. Fill does not allocate memory.
func (x *Extractor) Fill(values, mask []float32, s *scheduler.State) {
	clear(values)
	clear(mask)
	x.visitCluster(s)
	for f := range firstGPU {
		x.put(values, mask, f, f)
	}
	at := clusterFacts
	for _, gpu := range x.order {
		copy(values[at:], x.gpuValues[gpu*gpuFacts:(gpu+1)*gpuFacts])
		copy(mask[at:], x.gpuMask[gpu*gpuFacts:(gpu+1)*gpuFacts])
		x.visitGPU(s, gpu)
		for _, f := range [...]int{gpuUp, gpuOccupancy, gpuFreeCPUs, gpuFreeMemory, gpuBusyFor} {
			x.put(values[at:], mask[at:], f-firstGPU, f)
		}
		at += gpuFacts
	}
	at = clusterFacts + x.options.GPUs*gpuFacts
	for _, job := range s.Queue[:min(x.options.Jobs, len(s.Queue))] {
		x.FillJob(values[at:], mask[at:], s, job)
		at += jobFacts
	}
}

// FillJob writes the features of any job that has arrived: [PerJob] values and their masks. The job needs no slot.
// FillJob does not allocate memory.
func (x *Extractor) FillJob(values, mask []float32, s *scheduler.State, job int) {
	copy(values, x.jobValues[job*jobFacts:(job+1)*jobFacts])
	copy(mask, x.jobMask[job*jobFacts:(job+1)*jobFacts])
	x.visitJob(s, job)
	for _, f := range [...]int{jobWaited, jobWork, jobRunningTime} {
		x.put(values, mask, f-firstJob, f)
	}
}

func (x *Extractor) visitJob(s *scheduler.State, job int) {
	x.raw[jobWaited], x.raw[jobWork] = s.Now-x.workload.Jobs[job].Arrival, s.Remaining[job]
	x.raw[jobRunningTime] = x.runningTime(s, job)
}

func (x *Extractor) runningTime(s *scheduler.State, job int) float64 {
	if !(x.best[job] > 0) {
		return math.NaN()
	}
	return s.Remaining[job] / x.best[job]
}

func (x *Extractor) visitCluster(s *scheduler.State) {
	up, occupied := 0, 0
	for gpu := range x.cluster.GPUs {
		if s.Up[gpu] {
			up++
			if len(s.OnGPU[gpu]) > 0 {
				occupied++
			}
		}
		x.busy[gpu] = 0
	}
	for i := range s.Running {
		r := &s.Running[i]
		for _, gpu := range r.GPUs {
			x.busy[gpu] = max(x.busy[gpu], left(s, r)) // NaN stays NaN
		}
	}
	work := 0.0
	for _, job := range s.Queue {
		if t := x.runningTime(s, job); !math.IsNaN(t) {
			work += t * float64(x.workload.Jobs[job].GPUs)
		}
	}
	gpus := float64(len(x.cluster.GPUs))
	x.raw[clusterQueue], x.raw[clusterWork] = float64(len(s.Queue)), work/gpus
	x.raw[clusterRunning], x.raw[clusterUp] = float64(len(s.Running))/gpus, float64(up)/gpus
	x.raw[clusterOccupancy] = float64(occupied) / float64(up) // NaN without available GPUs
}

// left returns the time until a job frees its GPUs. It is NaN while the job loads, because the speed is not measured
// yet.
func left(s *scheduler.State, r *scheduler.Running) float64 {
	if r.Speed > 0 || !math.IsInf(r.Leaves, 1) {
		return s.Left(r)
	}
	return math.NaN()
}

func (x *Extractor) visitGPU(s *scheduler.State, gpu int) {
	m := x.cluster.GPUs[gpu].Machine
	x.raw[gpuUp] = 0
	if s.Up[gpu] {
		x.raw[gpuUp] = 1
	}
	x.raw[gpuOccupancy] = float64(len(s.OnGPU[gpu])) / scheduler.MaxSharing
	x.raw[gpuFreeCPUs] = s.FreeCPUs[m] / x.cluster.Machines[m].CPUs // NaN for a machine without cores
	x.raw[gpuFreeMemory] = s.FreeMem[m] / x.cluster.Machines[m].Memory
	x.raw[gpuBusyFor] = x.busy[gpu]
}

// Learn adds the facts of a state to a learner. It adds the GPUs and jobs that Fill writes. The state must be of the
// cluster and the workload of Reset.
func (x *Extractor) Learn(l *Learner, s *scheduler.State) {
	learn := func(from, to int) {
		for f := from; f < to; f++ {
			l.add(f, x.raw[f])
		}
	}
	x.visitCluster(s)
	learn(0, firstGPU)
	for _, gpu := range x.order {
		gpuStatic(&x.raw, x.cluster, gpu)
		x.visitGPU(s, gpu)
		learn(firstGPU, firstJob)
	}
	for _, job := range s.Queue[:min(x.options.Jobs, len(s.Queue))] {
		jobStatic(&x.raw, x.workload, job)
		x.visitJob(s, job)
		learn(firstJob, factCount)
	}
}
