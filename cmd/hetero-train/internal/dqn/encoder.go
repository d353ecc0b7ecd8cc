package dqn

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
)

// encoder converts the states of one run to observations. It is not safe for concurrent use.
type encoder struct {
	Encoding
	rows, slots int  // minimum numbers of rows and slots
	partial     bool // without a baseline, leave out jobs that need several types, instead of an error
	shape       Shape
	cluster     *scheduler.Cluster
	work        *scheduler.Workload
	speeds      scheduler.Speeds
	groups      []group
	groupOf     []int     // index of the group, by GPU
	mean        []float64 // mean relative speed of all kinds, by type
	best        []float64 // speed on the best available type, by job; see rate
	several     []bool    // whether no single type of the cluster has enough GPUs, by job
	moved       []bool    // whether the baseline has stopped the job to move it, and will start it, by job
	unit        float64   // unit of time, s
	logs        float64   // sum of the logarithms of the running times of the jobs that have arrived
	arrived     int       // number of these jobs

	adviser  scheduler.Policy
	advice   scheduler.Action    // action of the baseline in the last observed state
	affinity *hyper.Affinity     // nil: no similarity scores
	ingested *features.Extractor // nil: no facts of package features

	up      int       // number of available GPUs
	upType  []int     // number of available GPUs, by type
	until   []float64 // time until the GPU is free, s, by GPU
	jobs    []int     // shown jobs, by slot
	usable  []int     // number of GPUs that the current job can use, by group
	total   []int     // sum of usable, by type
	most    []int     // maximum of usable, by type
	free    []int     // number of free GPUs, by group
	waits   []float64 // times until the GPUs are free, s, ascending, by (group, slot)
	slotted []int     // GPU in the slot, by (group, slot)
	place   []int     // place of the GPU in the facts of package features, by GPU
	ups     []int     // number of available GPUs, by group
	partner []int     // index of the running job to share with, by (slot, group); -1: none
	gpus    []int     // result of gang
	ratios  []float64
	same    []float32 // values that all pairs of a job have in common
	values  []float32 // facts of package features about the cluster and the GPUs
	mask    []float32
}

func newEncoder(e Encoding, keep bool) (*encoder, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	n := &encoder{Encoding: e, rows: 1, slots: 1}
	if scheduler.Stops(e.Advice) {
		return nil,
			fmt.Errorf(
				"encoding: advice: got policy %s, whose decisions depend on earlier states: choose another baseline",
				e.Advice)
	}
	if e.Advice != "" {
		var err error
		if n.adviser, err = scheduler.New(e.Advice, scheduler.Options{Keep: keep}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// SeveralTypesError reports a job that needs GPUs of several types although the network has no baseline that could
// place it (Encoding.Advice, Policy.SetAlone). Policy.Reset and NewEnvironments return it.
type SeveralTypesError struct {
	Job  int // index into Workload.Jobs
	Name string
	GPUs int
}

// Error implements error.
func (e *SeveralTypesError) Error() string {
	return fmt.Sprintf("job %d (%q): %s", e.Job, e.Name, e.Reason())
}

// Reason returns the text of the error without the name of the job.
func (e *SeveralTypesError) Reason() string {
	return fmt.Sprintf(
		"no type has enough GPUs that run the job (it needs %d), and policy dqn has no baseline here that could place it: "+
			"use another policy, or omit --alone and --agents and use a network that was trained without --alone", e.GPUs)
}

// reset prepares the encoder for a run.
func (n *encoder) reset(c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds) error {
	if n.cluster != c {
		n.layout(c)
	}
	n.work, n.speeds = w, speeds
	n.mean = zeroed(n.mean, len(c.Types))
	for kind := range w.Kinds {
		most := 0.0
		for t := range c.Types {
			most = max(most, speeds.Alone(kind, t, 1, false))
		}
		for t := range c.Types {
			if most > 0 {
				n.mean[t] += speeds.Alone(kind, t, 1, false) / most / float64(len(w.Kinds))
			}
		}
	}
	for t := range c.Types {
		n.upType[t] = 0
	}
	for _, gpu := range c.GPUs {
		n.upType[gpu.Type]++
	}
	n.several, n.moved = zeroed(n.several, len(w.Jobs)), zeroed(n.moved, len(w.Jobs))
	for i := range w.Jobs {
		if n.several[i] = n.fastest(i, true) == 0; n.several[i] && n.adviser == nil && !n.partial {
			return n.severalTypes(i)
		}
	}
	n.rate()
	n.unit, n.logs, n.arrived = 1, 0, 0
	if n.Similarity > 0 { // forget earlier experience, because a run must depend only on its seed and actions
		var err error
		if n.affinity, err = hyper.NewAffinity(hyper.Options{Dimension: n.Similarity}); err != nil {
			return err
		}
		n.affinity.Reset(c, w)
	}
	if n.Ingested {
		var err error
		if n.ingested, err = features.New(features.Options{GPUs: len(c.GPUs)}); err != nil {
			return err
		}
		if err := n.ingested.Reset(c, w, speeds); err != nil {
			return err
		}
		n.values, n.mask = zeroed(n.values, n.ingested.Size()), zeroed(n.mask, n.ingested.Size())
	}
	if n.adviser != nil {
		return n.adviser.Reset(c, w, speeds)
	}
	return nil
}

// severalTypes returns the error for a job that needs GPUs of several types.
func (n *encoder) severalTypes(job int) *SeveralTypesError {
	j := &n.work.Jobs[job]
	return &SeveralTypesError{Job: job, Name: j.Name, GPUs: j.GPUs}
}

// zeroed returns n zero values in the memory of v.
func zeroed[E any](v []E, n int) []E {
	v = slices.Grow(v[:0], n)[:n]
	clear(v)
	return v
}

// layout sets the groups for a cluster.
func (n *encoder) layout(c *scheduler.Cluster) {
	n.cluster, n.groups, n.groupOf = c, groupsOf(c), make([]int, len(c.GPUs))
	rows, slots := Grid(c)
	n.shape = n.Shape(max(n.rows, rows), max(n.slots, slots))
	for i, g := range n.groups {
		for _, gpu := range g.gpus {
			n.groupOf[gpu] = i
		}
	}
	n.upType, n.total, n.most = make([]int, len(c.Types)), make([]int, len(c.Types)), make([]int, len(c.Types))
	n.until = make([]float64, len(c.GPUs))
	n.usable, n.free, n.ups = make([]int, rows), make([]int, rows), make([]int, rows)
	n.waits, n.slotted = make([]float64, rows*n.shape.Slots), make([]int, rows*n.shape.Slots)
	n.place = make([]int, len(c.GPUs))
	for m, place := 0, 0; m < len(c.Machines); m++ {
		for _, gpu := range c.Machines[m].GPUs {
			n.place[gpu] = place
			place++
		}
	}
	n.partner, n.ratios = make([]int, n.shape.Jobs*rows), make([]float64, n.shape.Jobs*rows)
	n.same = make([]float32, n.shape.Pair)
}

// fastest returns the speed of a job on the best type with available GPUs (upType). If whole is true, it considers only
// types with enough GPUs for the job.
func (n *encoder) fastest(job int, whole bool) (speed float64) {
	j := &n.work.Jobs[job]
	need := n.work.Kinds[j.Kind].GPUMemory
	for t, up := range n.upType {
		if up == 0 || whole && up < j.GPUs || need > n.cluster.Types[t].Memory {
			continue
		}
		here := n.speeds.Alone(j.Kind, t, j.GPUs, false)
		if here == 0 {
			here = n.speeds.Alone(j.Kind, t, j.GPUs, true)
		}
		speed = max(speed, here)
	}
	return speed
}

// rate computes the best speed of each job. For a job that needs several types, or GPUs that are not available now, it
// estimates the speed. The estimate affects only relative times.
func (n *encoder) rate() {
	n.best = zeroed(n.best, len(n.work.Jobs))
	for i := range n.work.Jobs {
		if n.best[i] = n.fastest(i, true); n.best[i] > 0 {
			continue
		}
		if n.best[i] = n.fastest(i, false); n.best[i] > 0 {
			continue
		}
		j := &n.work.Jobs[i]
		for t := range n.cluster.Types {
			n.best[i] = max(n.best[i], n.speeds.Alone(j.Kind, t, j.GPUs, false),
				n.speeds.Alone(j.Kind, t, j.GPUs, true),
				float64(j.GPUs)*n.speeds.Alone(j.Kind, t, 1, false))
		}
		if n.best[i] == 0 { // no GPU of the cluster runs the job, and times at speed 0 would not be finite
			n.best[i] = 1
		}
	}
}

// follow updates the values that depend on the availability of GPUs and on arrivals.
func (n *encoder) follow(s *scheduler.State) {
	up := zeroed(n.total, len(n.upType)) // total is free to use, because room computes it again
	n.up = 0
	for gpu, ok := range s.Up {
		if ok {
			up[n.cluster.GPUs[gpu].Type]++
			n.up++
		}
	}
	if !slices.Equal(up, n.upType) {
		copy(n.upType, up)
		n.rate()
	}
	for ; n.arrived < s.Arrived; n.arrived++ {
		n.logs += math.Log(n.work.Jobs[n.arrived].Work / n.best[n.arrived])
	}
	if n.arrived > 0 {
		n.unit = math.Exp(n.logs / float64(n.arrived))
	}
}

// freeGPUs returns the number of available GPUs without a job in the last observed state.
func (n *encoder) freeGPUs() (free int) {
	for _, f := range n.free {
		free += f
	}
	return free
}

// room computes the number of usable GPUs of each group for a job.
func (n *encoder) room(s *scheduler.State, j *scheduler.Job) {
	need := n.work.Kinds[j.Kind].GPUMemory
	clear(n.total)
	clear(n.most)
	for i, g := range n.groups {
		n.usable[i] = 0
		if n.free[i] > 0 && need <= n.cluster.Types[g.typ].Memory {
			n.usable[i] = min(n.free[i], scheduler.Multiples(s.FreeCPUs[g.machine], j.CPUs),
				scheduler.Multiples(s.FreeMem[g.machine], j.Memory))
		}
		n.total[g.typ] += n.usable[i]
		n.most[g.typ] = max(n.most[g.typ], n.usable[i])
	}
}

// apart reports whether a gang runs on GPUs of a type only if they are on several machines.
func (n *encoder) apart(j *scheduler.Job, typ int) bool {
	return j.GPUs > 1 && !(n.speeds.Alone(j.Kind, typ, j.GPUs, false) > 0) &&
		n.speeds.Alone(j.Kind, typ, j.GPUs, true) > 0
}
