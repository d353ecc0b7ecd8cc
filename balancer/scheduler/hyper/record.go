package hyper

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// JobFacts are the facts of a job that its record contains. NaN and "" are unknown facts.
type JobFacts struct {
	Kind     string
	Class    string
	Priority float64 // between 0 and 1
	GPUs     float64
	CPUs     float64 // cores, for each GPU
	Memory   float64 // bytes of host memory, for each GPU
	Network  float64 // bytes/s, for each GPU
}

// GPUFacts are the facts of a GPU that its record contains. NaN and "" are unknown facts.
type GPUFacts struct {
	Model       string
	Memory      float64 // bytes
	Bandwidth   float64 // bytes/s
	Compute     float64 // FLOP/s
	Utilization float64 // fraction
}

// FactsOfJob returns the facts of a job of a workload.
func FactsOfJob(w *scheduler.Workload, job int) JobFacts {
	j := &w.Jobs[job]
	k := &w.Kinds[j.Kind]
	f := JobFacts{Kind: k.Name, Priority: j.Priority, GPUs: float64(j.GPUs), CPUs: j.CPUs, Memory: j.Memory,
		Network: j.Network}
	if k.Class >= 0 && k.Class < scheduler.Classes {
		f.Class = k.Class.String()
	}
	return f
}

// FactsOfGPU returns the facts of a GPU on which n jobs of this scheduler run. Its utilization is the measured
// utilization plus n / scheduler.MaxSharing, but at most 1. An unknown measured utilization counts as 0.
func FactsOfGPU(c *scheduler.Cluster, gpu, n int) GPUFacts {
	g := &c.GPUs[gpu]
	t := &c.Types[g.Type]
	used := float64(n) / scheduler.MaxSharing
	if !math.IsNaN(g.Utilization) {
		used += g.Utilization
	}
	return GPUFacts{Model: t.Name, Memory: t.Memory, Bandwidth: t.Bandwidth, Compute: t.Compute,
		Utilization: min(used, 1)}
}

// Facts of a record, in the order of their roles.
const (
	roleKind = iota
	roleClass
	rolePriority
	roleGPUs
	roleCPUs
	roleMemory
	roleNetwork
	jobRoles // the number of roles of a job
)

const (
	roleModel = iota
	roleGPUMemory
	roleBandwidth
	roleCompute
	roleUtilization
	gpuRoles // the number of roles of a GPU
)

// numberLevels is the number of levels of a number. The ranges below span 10 to 17 powers of two, so a level is about
// one power of two.
const numberLevels = 17

// The ranges of numbers are fixed, so that records of different clusters and of different runs are comparable. A number
// outside of the range has the level of the nearer limit.
var (
	countRange     = logarithmic{1, 1 << 10}       // GPUs, CPU cores
	memoryRange    = logarithmic{1 << 28, 1 << 40} // 256 MiB to 1 TiB
	networkRange   = logarithmic{1e6, 1e11}        // bytes/s
	bandwidthRange = logarithmic{1e10, 1e13}       // bytes/s
	computeRange   = logarithmic{1e11, 1e16}       // FLOP/s
	jobRoleNames   = [jobRoles]string{"kind", "class", "priority", "gpus", "cpus", "memory", "network"}
	gpuRoleNames   = [gpuRoles]string{"model", "gpu memory", "bandwidth", "compute", "utilization"}
)

// logarithmic maps numbers between low and high to 0 and 1, by their logarithm. 0 maps to 0.
type logarithmic struct{ low, high float64 }

func (l logarithmic) of(x float64) float64 {
	if math.IsNaN(x) {
		return math.NaN()
	}
	return math.Log2(max(x, l.low)/l.low) / math.Log2(l.high/l.low)
}

// jobKey and gpuKey are records before encoding: the item or level of each role, -1 for an unknown fact. Equal keys
// have equal records.
type (
	jobKey [jobRoles]int
	gpuKey [gpuRoles]int
)

// Encoder makes the records of jobs and GPUs. Its items and levels depend only on the space and on names.
type Encoder struct {
	space    *Space
	kinds    *Memory
	classes  *Memory
	models   *Memory
	levels   *Levels // the same for all numbers, because the role distinguishes them
	jobRoles [jobRoles]Vector
	gpuRoles [gpuRoles]Vector
	bundle   *Bundle
	pair     Vector
}

// NewEncoder returns an encoder.
func (s *Space) NewEncoder() (*Encoder, error) {
	levels, err := s.NewLevels("level", numberLevels)
	if err != nil {
		return nil, err
	}
	e := &Encoder{
		space: s, kinds: s.NewMemory(), classes: s.NewMemory(), models: s.NewMemory(), levels: levels,
		bundle: s.NewBundle(), pair: s.New(),
	}
	for i, name := range jobRoleNames {
		e.jobRoles[i] = s.Random("role of a job: " + name)
	}
	for i, name := range gpuRoleNames {
		e.gpuRoles[i] = s.Random("role of a GPU: " + name)
	}
	return e, nil
}

// Models is the item memory of GPU models.
func (e *Encoder) Models() *Memory { return e.models }

// Kinds is the item memory of kinds of jobs.
func (e *Encoder) Kinds() *Memory { return e.kinds }

func item(m *Memory, prefix, name string) int {
	if name == "" {
		return -1
	}
	if i, ok := m.index[name]; ok {
		return i
	}
	i, _ := m.Add(name, m.space.Random(prefix+name)) // the name is free
	return i
}

func (e *Encoder) jobKey(f *JobFacts) jobKey {
	return jobKey{
		roleKind:     item(e.kinds, "kind: ", f.Kind),
		roleClass:    item(e.classes, "class: ", f.Class),
		rolePriority: e.levels.Index(f.Priority),
		roleGPUs:     e.levels.Index(countRange.of(f.GPUs)),
		roleCPUs:     e.levels.Index(countRange.of(f.CPUs)),
		roleMemory:   e.levels.Index(memoryRange.of(f.Memory)),
		roleNetwork:  e.levels.Index(networkRange.of(f.Network)),
	}
}

func (e *Encoder) gpuKey(f *GPUFacts) gpuKey {
	return gpuKey{
		roleModel:       item(e.models, "model: ", f.Model),
		roleGPUMemory:   e.levels.Index(memoryRange.of(f.Memory)),
		roleBandwidth:   e.levels.Index(bandwidthRange.of(f.Bandwidth)),
		roleCompute:     e.levels.Index(computeRange.of(f.Compute)),
		roleUtilization: e.levels.Index(f.Utilization),
	}
}

func (e *Encoder) encodeJob(dst Vector, k jobKey) {
	e.bundle.Clear()
	for role, index := range k {
		switch {
		case index < 0:
		case role == roleKind:
			e.add(e.jobRoles[role], e.kinds.At(index), nameWeight)
		case role == roleClass:
			e.add(e.jobRoles[role], e.classes.At(index), 1)
		default:
			e.add(e.jobRoles[role], e.levels.At(index), 1)
		}
	}
	e.bundle.Majority(dst)
}

// encodePlace writes the vector of a GPU in a placement: the record of its numbers, bound to its model. Placements on
// different models are therefore unrelated. With the record alone, placements on one model would change the scores of
// another model with similar numbers, although the speed also depends on software. On the default cluster, the scores
// would then have the right sign for 86 % of the pairs of jobs and GPUs instead of 95 %.
func (e *Encoder) encodePlace(dst Vector, k gpuKey) {
	model := k[roleModel]
	k[roleModel] = -1
	e.encodeGPU(dst, k)
	if model >= 0 {
		e.space.Bind(dst, dst, e.models.At(model))
	}
}

func (e *Encoder) encodeGPU(dst Vector, k gpuKey) {
	e.bundle.Clear()
	for role, index := range k {
		switch {
		case index < 0:
		case role == roleModel:
			e.add(e.gpuRoles[role], e.models.At(index), nameWeight)
		default:
			e.add(e.gpuRoles[role], e.levels.At(index), 1)
		}
	}
	e.bundle.Majority(dst)
}

// nameWeight is the weight of the kind in the record of a job, and of the model in the record of a GPU. All other facts
// have weight 1. With 1, records of jobs of different kinds with equal requests are almost equal, so an affinity cannot
// distinguish them. With 4 or more, the other facts are lost in the noise of queries. With an odd weight, a record
// without unknown facts (6 or 4 other facts) has no ties.
const nameWeight = 3

func (e *Encoder) add(role, value Vector, weight int) {
	e.space.Bind(e.pair, role, value)
	for range weight {
		e.bundle.Add(e.pair)
	}
}

// Job writes the record of a job to dst.
func (e *Encoder) Job(dst Vector, f *JobFacts) { e.encodeJob(dst, e.jobKey(f)) }

// GPU writes the record of a GPU to dst.
func (e *Encoder) GPU(dst Vector, f *GPUFacts) { e.encodeGPU(dst, e.gpuKey(f)) }

// Model queries the record of a GPU for its model. similarity is the similarity of the unbound record and the model.
func (e *Encoder) Model(record Vector) (name string, similarity float64) {
	return e.query(record, e.gpuRoles[roleModel], e.models)
}

// Kind queries the record of a job for its kind, as Model does.
func (e *Encoder) Kind(record Vector) (name string, similarity float64) {
	return e.query(record, e.jobRoles[roleKind], e.kinds)
}

// query returns the item that a record contains in a role.
func (e *Encoder) query(record, role Vector, items *Memory) (name string, similarity float64) {
	v := e.space.New()
	e.space.Bind(v, record, role)
	m, ok := items.Cleanup(v)
	if !ok {
		return "", 0
	}
	return items.Name(m.Item), m.Similarity
}

// Utilization queries the record of a GPU for its utilization.
func (e *Encoder) Utilization(record Vector) (x, similarity float64) {
	v := e.space.New()
	e.space.Bind(v, record, e.gpuRoles[roleUtilization])
	return e.levels.Decode(v)
}

// Priority queries the record of a job for its priority.
func (e *Encoder) Priority(record Vector) (x, similarity float64) {
	v := e.space.New()
	e.space.Bind(v, record, e.jobRoles[rolePriority])
	return e.levels.Decode(v)
}
