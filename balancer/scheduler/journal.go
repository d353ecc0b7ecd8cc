package scheduler

import "github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"

// Journal lists the changes of a [State]. With it, a policy updates its data structures in a time proportional to the
// changes. Without it, the policy reads the whole state at each decision. Package simulate keeps a journal.
//
// A change names a job or a GPU, but not the kind of change. A reader that is late therefore needs only the current
// state. A journal may contain a job or a GPU that has not changed.
type Journal struct {
	jobs, gpus changes
	order      []int // by job: Running.Order; only valid while the job runs
	starts     int
}

// changes is a list of numbers. It keeps at least limits.Journal of them, and drops the oldest.
type changes struct {
	base int // number of changes that were dropped
	list []int
}

func (c *changes) add(v int) {
	if size := limits.Journal; len(c.list) >= 2*size {
		n := copy(c.list, c.list[size:])
		c.base, c.list = c.base+size, c.list[:n]
	}
	c.list = append(c.list, v)
}

func (c *changes) end() int { return c.base + len(c.list) }

// since returns the changes from a position on; ok is false if some of them were dropped.
func (c *changes) since(at int) (list []int, ok bool) {
	if at < c.base {
		return nil, false
	}
	return c.list[at-c.base:], true
}

// reset drops all changes, so that all readers are late.
func (c *changes) reset() { c.base, c.list = c.end()+1, c.list[:0] }

// Reset begins the journal of a run with a number of jobs.
func (j *Journal) Reset(jobs int) {
	j.jobs.reset()
	j.gpus.reset()
	j.starts = 0
	if cap(j.order) < jobs {
		j.order = make([]int, jobs)
	}
	j.order = j.order[:jobs]
}

// Start records that a job starts, and returns its [Running.Order].
func (j *Journal) Start(job int) (order int) {
	j.jobs.add(job)
	j.order[job] = j.starts
	j.starts++
	return j.order[job]
}

// Job records a change of a job. It has entered or left the queue or its GPUs, or there is a new value of its speed,
// its partner, the estimate of its work, or the time at which it frees its GPUs. Policies keep the order of the ends of
// jobs. The remaining steps of a running job may therefore change without a record only as its speed predicts.
func (j *Journal) Job(job int) { j.jobs.add(job) }

// GPU records that the jobs on a GPU, its availability, or the free resources of its machine have changed.
func (j *Journal) GPU(gpu int) { j.gpus.add(gpu) }

// Order returns [Running.Order] of a running job.
func (j *Journal) Order(job int) int { return j.order[job] }
