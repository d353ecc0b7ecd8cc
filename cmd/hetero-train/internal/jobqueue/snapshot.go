package jobqueue

// Phase is the state of a job in its queue system.
type Phase int

const (
	Pending Phase = iota
	Active        // the job has nodes
)

// GPUs is a number of GPUs of one type on one node.
type GPUs struct {
	Type  string // name in the queue system, for example "v100"; "" if the queue system has no types
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
	Down       string   // reason why no job can start on the node; "" if jobs can start
	Labels     []string // properties that jobs can require: partitions, features, labels
	Repels     []string // taints: only jobs that tolerate all of them can start on the node
}

// Job is one entry of the queue.
type Job struct {
	ID        string
	Name      string
	Phase     Phase
	Submitted float64  // seconds since 1970
	Started   float64  // seconds since 1970; 0 if pending
	Limit     float64  // time limit in seconds; +Inf: none
	Urgency   float64  // priority that the queue system computes; only the order matters
	GPUs      int      // total number of GPUs
	GPUType   string   // required type; "" if any
	Nodes     int      // required number of nodes; 0 if any
	CPUs      float64  // cores in total
	Memory    float64  // bytes in total
	Requires  []string // labels that a node needs
	Tolerates []string // tolerated taints; the key "*" without an effect tolerates all taints
	On        []string // only if Active: names of its nodes
	Holds     [][]GPUs // only if Active: its GPUs (Total) on each node in On; nil if unknown
	Kind      string   // kind in the speed table; "" if unknown
	Work      float64  // steps; 0 if unknown
	Skip      string   // reason why Propose does not place the job; "": Propose may place it
	Takes     []Take   // amounts that the job uses from budgets when it starts
}

// Budget is the part of a quota that jobs may still use.
type Budget struct {
	Name string // name for messages, such as "the quota gpus of the namespace ml for nvidia.com/gpu"
	Left float64
}

// Take is the amount of a budget that a job uses.
type Take struct {
	Budget int // index into Snapshot.Budgets
	Amount float64
}

// Snapshot is a cluster at one moment.
type Snapshot struct {
	System  string  // name for messages, such as "Slurm 22.05.8"
	Now     float64 // seconds since 1970
	Nodes   []Node
	Jobs    []Job
	Budgets []Budget
}

// Placement is a proposal for one pending job.
type Placement struct {
	Job     string         `json:"job"` // ID
	Name    string         `json:"name"`
	Nodes   []string       `json:"nodes,omitempty"` // names in ascending order; empty if the job must wait
	GPUs    map[string]int `json:"gpus,omitempty"`  // number of GPUs by type
	Reason  string         `json:"reason"`
	Applied bool           `json:"applied"`
}
