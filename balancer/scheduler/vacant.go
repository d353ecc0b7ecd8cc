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

// room returns the number of GPUs of a type that a job could use together in an empty cluster, and whether these GPUs
// are on several machines.
func (v *vacant) room(j *Job, gpuMemory float64, typ int, sawMemory, sawHost *bool) (total int, spread bool) {
	if gpuMemory > v.cluster.Types[typ].Memory {
		*sawMemory = true
		return 0, false
	}
	spread = true
	for i := range v.machines {
		m := &v.machines[i]
		have := m.have[typ]
		n := min(have, Multiples(m.cpus, j.CPUs), Multiples(m.memory, j.Memory))
		if n < have {
			*sawHost = true
		}
		if n >= j.GPUs {
			spread = false
		}
		total += n * m.count
	}
	return total, spread
}

// holdsUniform reports whether a job fits on GPUs of one type of an empty cluster.
func (v *vacant) holdsUniform(j *Job, gpuMemory float64, s Speeds) bool {
	var memory, host bool
	for t := range v.cluster.Types {
		n, spread := v.room(j, gpuMemory, t, &memory, &host)
		if n >= j.GPUs && (s.Alone(j.Kind, t, j.GPUs, true) > 0 || !spread && s.Alone(j.Kind, t, j.GPUs, false) > 0) {
			return true
		}
	}
	return false
}

// speed is [Cluster.EmptySpeed].
func (v *vacant) speed(j *Job, w *Workload, s Speeds, typ int) float64 {
	var memory, host bool
	n, spread := v.room(j, w.Kinds[j.Kind].GPUMemory, typ, &memory, &host)
	if n < j.GPUs {
		return 0
	}
	return s.Alone(j.Kind, typ, j.GPUs, spread)
}

// EmptySpeed returns the speed of a job on GPUs of a type of an empty cluster, in steps/s. It returns 0 if the job does
// not fit there.
func (c *Cluster) EmptySpeed(j *Job, w *Workload, s Speeds, typ int) float64 {
	return c.vacant().speed(j, w, s, typ)
}
