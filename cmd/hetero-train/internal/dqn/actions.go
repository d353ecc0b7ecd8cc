package dqn

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// start converts an action of the network to an action of package scheduler. The caller must have passed the same state
// to observe.
func (n *encoder) start(s *scheduler.State, action int) scheduler.Action {
	if action == n.shape.Wait() {
		return scheduler.Action{}
	}
	if action >= n.shape.triples() {
		a := n.advice
		a.Reason = ""
		n.moved[a.Job] = false
		return a
	}
	slot, shares, i := n.triple(action)
	job := n.jobs[slot]
	a := scheduler.Action{Verb: scheduler.Start, Job: job}
	if shares {
		a.GPUs = append(n.gpus[:0], s.Running[n.partner[slot*len(n.groups)+i]].GPUs...)
	} else {
		a.GPUs = n.gang(s, job, i)
	}
	n.gpus = a.GPUs
	return a
}

// triple returns the three parts of an action: the slot of the job, whether the job shares GPUs, and the group.
func (n *encoder) triple(action int) (slot int, shares bool, i int) {
	way := action / n.shape.Rows
	return way / n.shape.Ways, way%n.shape.Ways == 1, action % n.shape.Rows
}

// gang returns the GPUs of a job that starts on group i.
func (n *encoder) gang(s *scheduler.State, job, i int) []int {
	j := &n.work.Jobs[job]
	n.room(s, j)
	gpus, need, most := n.gpus[:0], j.GPUs, j.GPUs
	if n.apart(j, n.groups[i].typ) {
		most-- // the gang must not get all GPUs on one machine
	}
	for need > 0 && i >= 0 {
		take := min(need, most, n.usable[i])
		for _, gpu := range n.groups[i].gpus {
			if take > 0 && s.Up[gpu] && len(s.OnGPU[gpu]) == 0 {
				gpus = append(gpus, gpu)
				take, need = take-1, need-1
			}
		}
		n.usable[i] = 0
		next := -1
		for k, g := range n.groups {
			if g.typ != n.groups[i].typ || n.usable[k] == 0 {
				continue
			}
			if next < 0 || n.usable[k] > n.usable[next] {
				next = k
			}
		}
		i = next
	}
	slices.Sort(gpus)
	return gpus
}

// advise returns the action of the baseline in the last observed state.
func (n *encoder) advise() int {
	if n.advice.Verb == scheduler.Wait {
		return n.shape.Wait()
	}
	return n.shape.triples()
}
