package scheduler

import (
	"errors"
	"fmt"
	"math"
)

// maxFaults limits the number of faults that a Check method names.
const maxFaults = 20

// faults collects errors and counts those beyond maxFaults.
type faults struct {
	list []error
	more int
}

func (f *faults) add(format string, values ...any) {
	if len(f.list) == maxFaults {
		f.more++
		return
	}
	f.list = append(f.list, fmt.Errorf(format, values...))
}

func (f *faults) err() error {
	if f.more > 0 {
		return errors.Join(append(f.list, fmt.Errorf("and %d more faults", f.more))...)
	}
	return errors.Join(f.list...)
}

// number adds a fault if got is outside of [least, most]. NaN is valid if unknown is true.
func (f *faults) number(what, name, unit string, got, least, most float64, unknown bool) {
	if unknown && math.IsNaN(got) || got >= least && got <= most {
		return
	}
	if math.IsInf(most, 1) || most == math.MaxFloat64 {
		limit := fmt.Sprintf("of at least %v", least)
		if least == math.SmallestNonzeroFloat64 {
			limit = "above 0"
		}
		f.add("%s: %s: got %v %s, want a finite number %s", what, name, got, unit, limit)
		return
	}
	f.add("%s: %s: got %v %s, want a number from %v to %v", what, name, got, unit, least, most)
}

const finite = math.MaxFloat64

// Check reports all faults of a cluster's numbers.
func (c *Cluster) Check() error {
	var f faults
	if len(c.GPUs) == 0 {
		f.add("cluster: got no GPUs, want at least one")
	}
	for i, t := range c.Types {
		what := fmt.Sprintf("GPU type %d (%q)", i, t.Name)
		f.number(what, "memory", "bytes", t.Memory, 0, finite, false)
		f.number(what, "bandwidth", "bytes/s", t.Bandwidth, 0, finite, true)
		f.number(what, "compute", "FLOP/s", t.Compute, 0, finite, true)
	}
	owner := make([]int, len(c.GPUs)) // 1 + machine
	for i, m := range c.Machines {
		what := fmt.Sprintf("machine %d (%q)", i, m.Name)
		f.number(what, "CPUs", "cores", m.CPUs, 0, finite, false)
		f.number(what, "memory", "bytes", m.Memory, 0, finite, false)
		f.number(what, "network", "bytes/s", m.Network, math.SmallestNonzeroFloat64, finite, true)
		for k, g := range m.GPUs {
			switch {
			case g < 0 || g >= len(c.GPUs):
				f.add("%s: got GPU %d, want a GPU from 0 to %d", what, g, len(c.GPUs)-1)
			case owner[g] > 0:
				f.add("%s: got GPU %d, which is already in machine %d", what, g, owner[g]-1)
			case k > 0 && m.GPUs[k-1] >= g:
				f.add("%s: got GPU %d after GPU %d, want ascending order", what, g, m.GPUs[k-1])
			default:
				owner[g] = 1 + i
			}
		}
	}
	for i, g := range c.GPUs {
		what := fmt.Sprintf("GPU %d (%q)", i, g.Name)
		if g.Type < 0 || g.Type >= len(c.Types) {
			f.add("%s: got type %d, want a type from 0 to %d", what, g.Type, len(c.Types)-1)
		}
		if g.Machine < 0 || g.Machine >= len(c.Machines) {
			f.add("%s: got machine %d, want a machine from 0 to %d", what, g.Machine, len(c.Machines)-1)
		} else if owner[i] != 1+g.Machine {
			f.add("%s: got machine %d, whose list of GPUs does not contain it", what, g.Machine)
		}
		f.number(what, "utilization", "(fraction)", g.Utilization, 0, 1, true)
		f.number(what, "temperature", "degrees Celsius", g.Temperature, -273.15, finite, true)
	}
	return f.err()
}

// Check reports all faults of a workload's numbers.
func (w *Workload) Check() error {
	var f faults
	for i, k := range w.Kinds {
		what := fmt.Sprintf("kind %d (%q)", i, k.Name)
		if k.Class < 0 || k.Class >= Classes {
			f.add("%s: got class %d, want a class from 0 to %d", what, k.Class, Classes-1)
		}
		f.number(what, "GPU memory", "bytes", k.GPUMemory, 0, finite, false)
		f.number(what, "time to save", "s", k.Save, 0, finite, false)
		f.number(what, "time to load", "s", k.Load, 0, finite, false)
	}
	for i := range w.Jobs {
		w.Jobs[i].check(&f, w, i)
	}
	return f.err()
}

func (j *Job) check(f *faults, w *Workload, i int) {
	if j.valid(w) && (i == 0 || w.Jobs[i-1].Arrival <= j.Arrival) {
		return // without formatting
	}
	what := fmt.Sprintf("job %d (%q)", i, j.Name)
	if j.Kind < 0 || j.Kind >= len(w.Kinds) {
		f.add("%s: got kind %d, want a kind from 0 to %d", what, j.Kind, len(w.Kinds)-1)
	}
	if j.GPUs < 1 {
		f.add("%s: got %d GPUs, want at least 1", what, j.GPUs)
	}
	f.number(what, "arrival", "s", j.Arrival, 0, finite, false)
	if !(j.Work > 0 && j.Work <= finite) {
		f.add("%s: work: got %v steps, want a finite number above 0", what, j.Work)
	}
	f.number(what, "CPUs", "cores", j.CPUs, 0, finite, false)
	f.number(what, "memory", "bytes", j.Memory, 0, finite, false)
	f.number(what, "network", "bytes/s", j.Network, 0, finite, false)
	f.number(what, "priority", "", j.Priority, 0, 1, false)
	f.number(what, "estimate", "steps", j.Estimate, 0, finite, false)
	f.number(what, "error of the estimate", "", j.Error, 0, finite, false)
	if j.Estimate > 0 && j.Error > 0 {
		f.add("%s: got an estimate of %v steps and an error of %v, want at most one of the two", what, j.Estimate,
			j.Error)
	}
	if i > 0 && j.Arrival < w.Jobs[i-1].Arrival {
		f.add("%s: got arrival at %v s after a job that arrives at %v s, want jobs in the order of arrival", what,
			j.Arrival, w.Jobs[i-1].Arrival)
	}
}

func (j *Job) valid(w *Workload) bool {
	in := func(v, most float64) bool { return v >= 0 && v <= most }
	return j.Kind >= 0 && j.Kind < len(w.Kinds) && j.GPUs >= 1 && in(j.Arrival, finite) && j.Work > 0 &&
		j.Work <= finite &&
		in(j.CPUs, finite) && in(j.Memory, finite) && in(j.Network, finite) && in(j.Priority, 1) &&
		(j.Estimate == 0 && j.Error == 0 || in(j.Estimate, finite) && in(j.Error, finite) && j.Estimate*j.Error == 0)
}

// UnplaceableError reports a job that even an empty cluster cannot hold.
type UnplaceableError struct {
	Job  int
	Name string
	Why  string // what the job needs and the cluster lacks
}

func (e *UnplaceableError) Error() string {
	return fmt.Sprintf("job %d (%q) fits on no GPUs of this cluster: %s", e.Job, e.Name, e.Why)
}
