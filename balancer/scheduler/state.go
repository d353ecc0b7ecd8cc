package scheduler

// MaxSharing is the largest number of jobs on one GPU.
const MaxSharing = 2

// Running is a job that has GPUs.
type Running struct {
	Job       int     // index into Workload.Jobs
	GPUs      []int   // ascending
	Since     float64 // seconds: when it got these GPUs
	Speed     float64 // steps/s now; 0 while it loads its checkpoint
	Remaining float64 // steps
	Ready     float64 // seconds: when it starts or continues to compute
	Leaves    float64 // seconds: when it has saved its checkpoint and frees its GPUs; +Inf unless it was stopped
	Partner   int     // job that uses the same GPUs, or -1
	Order     int     // number of starts before it; only set if the state has a journal
}

// State is a cluster at one moment. Policies must not change it. All slices are indexed as in Cluster and Workload.
type State struct {
	Now      float64 // seconds
	Cluster  *Cluster
	Workload *Workload
	Speeds   Speeds

	Queue     []int     // jobs that wait, in the order of arrival
	Running   []Running // in the order of start
	Remaining []float64 // steps, by job
	Up        []bool    // by GPU: available
	OnGPU     [][]int   // by GPU: the jobs on it, at most MaxSharing
	FreeCPUs  []float64 // by machine: cores
	FreeMem   []float64 // by machine: bytes

	Arrived  int // jobs 0 to Arrived-1 have arrived
	Finished int // number of jobs that have finished

	// Journal lists the changes of this state. It is nil if the owner of the state does not record them. A policy may
	// pass a changed copy of the state to another policy. It must then record the differences of jobs and GPUs here, or
	// set the Journal of the copy to nil.
	Journal *Journal
	// If StepsOf is not nil, it returns the remaining steps of a running job, and Running.Remaining and Remaining are
	// not current for running jobs. Only an [Incremental] policy sees such a state.
	StepsOf func(job int) float64
}

// Incremental is a Policy that uses [State.Steps] instead of [Running.Remaining]. The simulator then need not compute
// the remaining steps of all running jobs at each event.
type Incremental interface {
	Policy
	// Incremental reports whether the policy uses State.Steps.
	Incremental() bool
}

// Steps returns the remaining steps of a running job.
func (s *State) Steps(r *Running) float64 {
	if s.StepsOf != nil {
		return s.StepsOf(r.Job)
	}
	return r.Remaining
}

// Verb is the kind of an action.
type Verb int

const (
	Wait  Verb = iota // until the next event
	Start             // a job of the queue on GPUs
	Stop              // a running job: it saves a checkpoint, then frees its GPUs and returns to the queue
)

// Action is one decision of a policy.
type Action struct {
	Verb Verb
	Job  int // index into Workload.Jobs
	// for Start: ascending, as many as the job needs; the policy may reuse the slice after the action is applied
	GPUs   []int
	Until  float64 // Wait: time in s, after Now, of the next decision if no event comes before; 0: at the next event
	Reason string  // one sentence, for `schedule explain`; empty without Options.Explain
}

// Policy decides which jobs start and stop. The simulator calls Decide until it returns Wait, then advances to the next
// event.
type Policy interface {
	// Name is the name that users select.
	Name() string
	// Reset prepares for a new run. All later states have this cluster and this workload.
	Reset(c *Cluster, w *Workload, s Speeds) error
	// Decide returns the next action. The action must depend only on the state and on earlier states.
	Decide(s *State) Action
}

// Waiter is a Policy that can state why it does not start a job.
type Waiter interface {
	Policy
	// Waits returns the reason why a job of the queue waits, for error messages; "" if the policy does not know a
	// reason.
	Waits(s *State, job int) string
}

// WhyWaits returns the reason why a job of the queue waits; "" if the policy is not a [Waiter] or does not know a
// reason.
func WhyWaits(p Policy, s *State, job int) string {
	if w, ok := p.(Waiter); ok {
		return w.Waits(s, job)
	}
	return ""
}

// Account computes the free CPU cores and memory on the machines of GPUs. It always sums the requests of all jobs, so
// that rounding errors do not accumulate. Code that changes OnGPU must call it; policies must not.
func (s *State) Account(gpus []int) {
	for i, g := range gpus {
		m := s.Cluster.GPUs[g].Machine
		if i > 0 && m == s.Cluster.GPUs[gpus[i-1]].Machine {
			continue
		}
		machine := &s.Cluster.Machines[m]
		cpus, memory := 0.0, 0.0
		for _, h := range machine.GPUs {
			for _, job := range s.OnGPU[h] {
				cpus += s.Workload.Jobs[job].CPUs
				memory += s.Workload.Jobs[job].Memory
			}
		}
		s.FreeCPUs[m], s.FreeMem[m] = max(0, machine.CPUs-cpus), max(0, machine.Memory-memory)
	}
}
