package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// siaTrial finds out whether the machines have room for the starts of a round. It repeats the round on a copy of the
// state, in which no job finishes and no GPU fails.
type siaTrial struct {
	state  State
	leaves []departure
	done   []bool // by start
	gpus   []int
}

// departure is a running job that frees its GPUs.
type departure struct {
	at   float64 // seconds
	job  int
	gpus []int
}

// siaStart is a job and the type that it gets. group is that of the job, or -1 if an earlier round has selected it.
type siaStart struct{ job, typ, group int }

// siaUsed is the entry of a used GPU in the copy of the state.
var siaUsed = []int{-1}

// run sets done. stops reports whether the round stops a running job.
func (x *siaTrial) run(s *State, starts []siaStart, stops func(job int) bool) {
	x.state = State{Now: s.Now, Cluster: s.Cluster, Workload: s.Workload, Speeds: s.Speeds, Up: s.Up,
		OnGPU:    append(x.state.OnGPU[:0], s.OnGPU...),
		FreeCPUs: append(x.state.FreeCPUs[:0], s.FreeCPUs...), FreeMem: append(x.state.FreeMem[:0], s.FreeMem...)}
	x.leaves = x.leaves[:0]
	for i := range s.Running {
		r := &s.Running[i]
		at := r.Leaves
		if math.IsInf(at, 1) && stops(r.Job) {
			at = s.Now + s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind].Save
		}
		if !math.IsInf(at, 1) {
			x.leaves = append(x.leaves, departure{at, r.Job, r.GPUs})
		}
	}
	slices.SortStableFunc(x.leaves, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
	x.done = append(x.done[:0], make([]bool, len(starts))...)
	rest := x.leaves
	for now := s.Now; ; now = rest[0].at {
		for len(rest) > 0 && rest[0].at <= now {
			x.use(rest[0].job, rest[0].gpus, nil)
			rest = rest[1:]
		}
		for i, v := range starts {
			if x.done[i] || slices.ContainsFunc(rest, func(d departure) bool { return d.job == v.job }) {
				continue
			}
			var ok bool
			if x.gpus, _, ok = x.state.Place(v.job, v.typ, x.gpus[:0]); ok {
				x.use(v.job, x.gpus, siaUsed)
				x.done[i] = true
			}
		}
		if len(rest) == 0 {
			return
		}
	}
}

// use sets the entry of the GPUs of a job: nil if the job leaves them, otherwise siaUsed.
func (x *siaTrial) use(job int, gpus, entry []int) {
	j, sign := &x.state.Workload.Jobs[job], 1.0
	if entry != nil {
		sign = -1
	}
	for _, g := range gpus {
		m := x.state.Cluster.GPUs[g].Machine
		x.state.OnGPU[g] = entry
		x.state.FreeCPUs[m] += sign * j.CPUs
		x.state.FreeMem[m] += sign * j.Memory
	}
}
