package scheduler

// GPUType is a model of GPU.
type GPUType struct {
	Name      string
	Memory    float64 // bytes
	Bandwidth float64 // bytes/s of device memory; NaN if not known
	Compute   float64 // FLOP/s; NaN if not known
}

// GPU is one GPU of a cluster. Unknown telemetry is NaN.
type GPU struct {
	Name        string
	Type        int     // index into Cluster.Types
	Machine     int     // index into Cluster.Machines
	Utilization float64 // fraction, measured outside of this scheduler
	Temperature float64 // degrees Celsius
}

// Machine is a host of GPUs.
type Machine struct {
	Name    string
	CPUs    float64 // cores
	Memory  float64 // bytes of host memory
	Network float64 // bytes/s of its link to other machines; NaN if not known: no limit
	GPUs    []int   // indices into Cluster.GPUs, ascending
}

// Cluster lists all GPUs that exist at any time. State contains which of them are available.
type Cluster struct {
	Types    []GPUType
	Machines []Machine
	GPUs     []GPU
}

// Spread reports whether GPUs belong to several machines.
func (c *Cluster) Spread(gpus []int) bool {
	for _, g := range gpus[1:] {
		if c.GPUs[g].Machine != c.GPUs[gpus[0]].Machine {
			return true
		}
	}
	return false
}

// Uniform reports whether all GPUs have the same type.
func (c *Cluster) Uniform(gpus []int) bool {
	for _, g := range gpus[1:] {
		if c.GPUs[g].Type != c.GPUs[gpus[0]].Type {
			return false
		}
	}
	return true
}
