package jobqueue

// Phase is the state of a job in its queue system.
type Phase int

const (
	Pending Phase = iota
	Active        // has nodes
)

// GPUs is a number of GPUs of one type on one node.
type GPUs struct {
	Type  string // in the queue system's notation, for example "v100"; "" if the queue system has no types
	Total int
	Used  int
}

// Node is a machine of the cluster.
type Node struct {
	Name       string
	GPUs       []GPUs
	CPUs       float64 // cores
	UsedCPUs   float64
	Memory     float64 // bytes
	UsedMemory float64
	Down       string   // reason why no job can start here; "" if jobs can start
	Labels     []string // properties that jobs can require: partitions, features, labels
	Repels     []string // taints: only jobs that tolerate all of them can start here
}

// Job is one entry of the queue.
type Job struct {
	ID        string
	Name      string
	Phase     Phase
	Submitted float64  // seconds since 1970
	Started   float64  // seconds since 1970; 0 if pending
	Limit     float64  // seconds: the time limit; +Inf if none
	Urgency   float64  // the queue system's own priority; only the order matters
	GPUs      int      // all GPUs of the job
	GPUType   string   // required type; "" if any
	Nodes     int      // required number of nodes; 0 if any
	CPUs      float64  // cores in total
	Memory    float64  // bytes in total
	Requires  []string // labels that a node needs
	Tolerates []string // taints; key "*" without an effect tolerates all taints
	On        []string // Active: names of its nodes
	Holds     [][]GPUs // Active: its GPUs (Total) on each node of On; nil if unknown
	Kind      string   // kind in the speed table; "" if unknown
	Work      float64  // steps; 0 if unknown
	Skip      string   // reason why no placement is proposed; "" if one is proposed
	Takes     []Take   // amounts that the job uses from budgets when it starts
}

// Budget is the part of a quota that jobs may still use.
type Budget struct {
	Name string // for messages: "the quota gpus of the namespace ml for nvidia.com/gpu"
	Left float64
}

// Take is the amount of a budget that a job uses.
type Take struct {
	Budget int // index into Snapshot.Budgets
	Amount float64
}

// Snapshot is a cluster at one moment.
type Snapshot struct {
	System  string  // for messages: "Slurm 22.05.8"
	Now     float64 // seconds since 1970
	Nodes   []Node
	Jobs    []Job
	Budgets []Budget
}

// Placement is a proposal for one pending job.
type Placement struct {
	Job     string         `json:"job"` // ID
	Name    string         `json:"name"`
	Nodes   []string       `json:"nodes,omitempty"` // ascending; empty if the job must wait
	GPUs    map[string]int `json:"gpus,omitempty"`  // by type
	Reason  string         `json:"reason"`
	Applied bool           `json:"applied"`
}
