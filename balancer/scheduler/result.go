package scheduler

// Segment is a period in which a job has GPUs.
type Segment struct {
	Job    int
	GPUs   []int
	From   float64 // seconds
	To     float64 // seconds
	Ended  End
	Reason string // reason of the policy for the start; empty if the run recorded no reasons
}

// End is the reason why a segment ended.
type End int

const (
	Finished   End = iota
	Stopped        // by the policy
	Failed         // a GPU became unavailable; work since the last checkpoint is lost
	Unfinished     // the run ended while the job had its GPUs
)

// Completion contains the times of one job.
type Completion struct {
	Arrival float64 // seconds
	Start   float64 // seconds: first start
	Finish  float64 // seconds; NaN if the run ended before the job
	Stops   int     // number of times that the job was stopped or failed
}

// Result is the outcome of a run.
type Result struct {
	Policy    string
	Jobs      []Completion // by job
	Segments  []Segment    // in the order of their start; nil if the run recorded no segments
	End       float64      // seconds: the time of the last event
	GPUHours  []float64    // by GPU: hours in which it had a job
	Available []float64    // by GPU: hours in which it was available
	Window    *Window      // nil: the run has none
	Decisions int          // starts and stops
	Events    int
}

// Window is the steady part of a run: without the warm-up, in which the cluster fills, and without the tail, in which
// it empties. It begins when the first job after the warm-up arrives ([WarmUp]), and ends when the last job arrives.
type Window struct {
	From      float64 // seconds
	To        float64 // seconds
	Busy      float64 // GPU seconds in which the GPUs had a job
	Available float64 // GPU seconds in which the GPUs were available
}

// WarmUp returns the number of jobs of a list that arrive before the steady window: a fifth.
func WarmUp(jobs int) int { return jobs / 5 }
