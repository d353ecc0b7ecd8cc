package scheduler

import "fmt"

// Class is the purpose of a job. The default workload, surges and package features use classes.
type Class int

const (
	Simulation Class  = iota // scientific simulation
	Learning                 // training of a model
	Processing               // data processing
	Classes    = iota        // the number of classes
)

var classes = [Classes]string{Simulation: "simulation", Learning: "learning", Processing: "processing"}

// String returns the name of the class in files.
func (c Class) String() string {
	if c < 0 || c >= Classes {
		return fmt.Sprintf("Class(%d)", int(c))
	}
	return classes[c]
}

// Kind is a program with the settings that determine its speed, for example "ResNet-18 (batch size 64)".
type Kind struct {
	Name      string
	Class     Class
	GPUMemory float64 // bytes on each GPU
	Save      float64 // seconds to write a checkpoint when the job stops
	Load      float64 // seconds to continue from the checkpoint
}

// Job is one submission. All resource requests are per GPU.
type Job struct {
	Name     string
	Kind     int     // index into Workload.Kinds
	Arrival  float64 // seconds
	Work     float64 // steps; one step is a batch of one GPU, so n GPUs compute n steps at the same time
	GPUs     int     // at least 1; all GPUs start and stop together
	CPUs     float64 // cores on the machine of each GPU
	Memory   float64 // bytes of host memory on the machine of each GPU
	Network  float64 // bytes/s that each GPU sends while the job spans several machines
	Priority float64 // between 0 and 1; 1 is the most urgent
	Guessed  bool    // Work is an upper bound, because the true work is unknown

	// Input of package uncertain, which replaces Work for policies. At most one of the two fields is above 0.
	Estimate float64 // steps; 0: no estimate is stated
	Error    float64 // standard deviation of the logarithm of an estimate's error; 0: none is stated
}

// Workload is a list of jobs in the order of arrival.
type Workload struct {
	Kinds []Kind
	Jobs  []Job
}
