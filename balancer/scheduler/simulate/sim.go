package simulate

import "github.com/hetero-train/hetero-train/balancer/scheduler"

// Change makes a GPU available or unavailable.
type Change struct {
	At  float64 // seconds
	GPU int     // index into Cluster.GPUs
	Up  bool
}

// Options of a simulation. The zero value is a cluster that does not change.
type Options struct {
	Changes    []Change // in the order of At; changes before the first arrival apply at the start
	Checkpoint float64  // seconds of computation between checkpoints of a job; 0: jobs save only when they are stopped
	Record     bool     // keep segments
	Until      float64  // end of the run, in seconds; 0: when all jobs have finished
}

// phase is the current activity of a job on its GPUs.
type phase uint8

const (
	loading phase = iota
	computing
	saving
)

// stay is the simulator's own data of a running job.
type stay struct {
	phase     phase
	spread    bool    // over several machines
	gpus      []int   // scheduler.Running.GPUs
	speed     float64 // scheduler.Running.Speed
	base      float64 // steps/s before the limits of the network
	anchor    float64 // seconds: when the current speed began
	remaining float64 // steps at anchor
	saved     float64 // steps that remain after the last checkpoint
	segment   int     // index into Result.Segments, -1 if not recorded
}

// Sim is a running simulation of a cluster. It is not safe for concurrent use.
type Sim struct {
	state   scheduler.State
	options Options

	journal scheduler.Journal
	stays   []stay // by job
	agenda  agenda // the next event of each running job
	traffic traffic
	pool    [][]int   // slices for GPUs of running jobs
	lazy    bool      // the policy is incremental
	ready   startHeap // buffer of happen and network

	queue   []int               // buffer of state.Queue
	running []scheduler.Running // buffer of state.Running
	resumes []bool
	change  int // next of options.Changes

	busySince, upSince []float64 // by GPU: seconds; NaN if not busy, not available
	busy, up           []float64 // by GPU: seconds
	marks              marks

	jobs      []scheduler.Completion
	segments  []scheduler.Segment
	decisions int
	events    int
	end       float64
}

// traffic is the use of the network by the running jobs that span machines.
type traffic struct {
	jobs    [][]int   // by machine: in the order of start
	load    []float64 // by machine: bytes/s that these jobs want to send
	changed []int     // machines whose load is not current
	is      []bool    // by machine: it is in changed
}

func (v *traffic) reset(machines int) {
	v.jobs, v.load, v.is = sized(v.jobs, machines), sized(v.load, machines), sized(v.is, machines)
	for m := range v.jobs {
		v.jobs[m] = v.jobs[m][:0]
	}
	clear(v.load)
	clear(v.is)
	v.changed = v.changed[:0]
}

// marks are the bounds of the steady window of a run, with the GPU seconds up to each of them.
type marks struct {
	from, to mark
}

type mark struct {
	at              float64 // seconds; NaN: not reached yet
	busy, available float64 // GPU seconds from the start of the run
}

// State returns the current state. It changes with each Apply and Next; callers must not change it.
func (s *Sim) State() *scheduler.State { return &s.state }
