package scheduler

import "slices"

// vacant describes the machines of a cluster without jobs. It counts equal machines once.
type vacant struct {
	cluster  *Cluster
	machines []capacity
}

// capacity describes equal machines.
type capacity struct {
	cpus, memory float64
	have         []int // by type: GPUs
	count        int   // machines
}

func (c *Cluster) vacant() *vacant {
	v := &vacant{cluster: c}
	have := make([]int, len(c.Types))
	for i := range c.Machines {
		m := &c.Machines[i]
		clear(have)
		for _, g := range m.GPUs {
			have[c.GPUs[g].Type]++
		}
		k := slices.IndexFunc(v.machines, func(o capacity) bool {
			return o.cpus == m.CPUs && o.memory == m.Memory && slices.Equal(o.have, have)
		})
		if k < 0 {
			k = len(v.machines)
			v.machines = append(v.machines, capacity{cpus: m.CPUs, memory: m.Memory, have: slices.Clone(have)})
		}
		v.machines[k].count++
	}
	return v
}

// space counts the GPUs of a type that a job could use together in an empty cluster.
type space struct {
	total, most int // on all machines, and on the machine with the most of them
	machines    int // with at least one of them
}

// room returns the space for a job on GPUs of a type.
func (v *vacant) room(j *Job, gpuMemory float64, typ int, sawMemory, sawHost *bool) (a space) {
	if gpuMemory > v.cluster.Types[typ].Memory {
		*sawMemory = true
		return a
	}
	for i := range v.machines {
		m := &v.machines[i]
		have := m.have[typ]
		n := min(have, Multiples(m.cpus, j.CPUs), Multiples(m.memory, j.Memory))
		if n < have {
			*sawHost = true
		}
		if n > 0 {
			a.total, a.most, a.machines = a.total+n*m.count, max(a.most, n), a.machines+m.count
		}
	}
	return a
}

// speed returns the speed of a job in this space, in steps/s, or 0 if it does not run there. As in [State.Place], the
// job uses one machine if it fits and runs there.
func (a *space) speed(j *Job, typ int, s Speeds) float64 {
	if a.total < j.GPUs {
		return 0
	}
	if a.most >= j.GPUs {
		if speed := s.Alone(j.Kind, typ, j.GPUs, false); speed > 0 {
			return speed
		}
	}
	if j.GPUs > 1 && a.machines > 1 {
		if speed := s.Alone(j.Kind, typ, j.GPUs, true); speed > 0 {
			return speed
		}
	}
	return 0
}

// holdsUniform reports whether a job fits on GPUs of one type of an empty cluster.
func (v *vacant) holdsUniform(j *Job, w *Workload, s Speeds) bool {
	for t := range v.cluster.Types {
		if v.speed(j, w, s, t) > 0 {
			return true
		}
	}
	return false
}

// speed is [Cluster.EmptySpeed].
func (v *vacant) speed(j *Job, w *Workload, s Speeds, typ int) float64 {
	var memory, host bool
	a := v.room(j, w.Kinds[j.Kind].GPUMemory, typ, &memory, &host)
	return a.speed(j, typ, s)
}

// EmptySpeed returns the speed of a job on GPUs of a type of an empty cluster, in steps/s. It returns 0 if the job does
// not fit there.
func (c *Cluster) EmptySpeed(j *Job, w *Workload, s Speeds, typ int) float64 {
	return c.vacant().speed(j, w, s, typ)
}
