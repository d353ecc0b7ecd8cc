package scheduler

import "fmt"

// Holds returns nil if the empty cluster can hold a job, otherwise an [*UnplaceableError]. For GPUs of several types,
// it tries only the sets that all policies try: see [placer.any].
func Holds(c *Cluster, w *Workload, s Speeds, job int) error { return c.vacant().holds(w, s, job) }

// HoldsAll is [Holds] for all jobs of a workload. It returns the error of the first job that does not fit.
func HoldsAll(c *Cluster, w *Workload, s Speeds) error {
	fit, empty := map[shape]bool{}, c.vacant()
	for i := range w.Jobs {
		key := w.Jobs[i].shape()
		if fit[key] {
			continue
		}
		if err := empty.holds(w, s, i); err != nil {
			return err
		}
		fit[key] = true
	}
	return nil
}

func (v *vacant) holds(w *Workload, s Speeds, job int) error {
	c, j := v.cluster, &w.Jobs[job]
	if v.holdsUniform(j, w, s) {
		return nil
	}
	total, sawMemory, sawHost, most, types, short := 0, false, false, 0, 0, false
	why := fmt.Sprintf("kind %q has no speed on %s of any type", w.Kinds[j.Kind].Name, gpus(j.GPUs))
	for t := range c.Types {
		a := v.room(j, w.Kinds[j.Kind].GPUMemory, t, &sawMemory, &sawHost)
		total += a.total
		types += min(a.total, 1)
		most = max(most, a.total)
		if text := a.lacks(w, j, &c.Types[t], s.Alone(j.Kind, t, j.GPUs, a.most >= j.GPUs) > 0); text != "" {
			why, short = text, true
		}
	}
	lacks := ""
	if total >= j.GPUs && j.GPUs > 1 {
		if lacks = c.lacksMixed(j, w, s); lacks == "" {
			return nil
		}
	}
	if most < j.GPUs {
		why, short = fmt.Sprintf("it needs %s, but %s of one type can hold it", gpus(j.GPUs), atMost(most)), true
	}
	if short {
		if types > 1 && total >= j.GPUs {
			why += fmt.Sprintf(", and kind %q has no speed on %d GPUs of several types: %s", w.Kinds[j.Kind].Name,
				j.GPUs, lacks)
		}
		if sawMemory {
			why += fmt.Sprintf("; it needs %.4g GiB of memory on each GPU, more than some GPUs have",
				w.Kinds[j.Kind].GPUMemory/(1<<30))
		}
		if sawHost {
			why += fmt.Sprintf(
				"; it needs %.4g CPU cores and %.4g GiB of memory for each GPU, more than some machines have", j.CPUs,
				j.Memory/(1<<30))
		}
	}
	return &UnplaceableError{Job: job, Name: j.Name, Why: why}
}

// lacks returns the reason why a job does not fit on a type that has enough GPUs; "" if the type has too few. runs
// reports whether the job would run on other machines of this type: over several if one machine can hold it, otherwise
// within one.
func (a *space) lacks(w *Workload, j *Job, t *GPUType, runs bool) string {
	switch {
	case !runs || a.total < j.GPUs || j.GPUs == 1:
		return ""
	case a.most >= j.GPUs:
		return fmt.Sprintf("kind %q runs on %s of type %q only over several machines (it has spread_speed, but no speed), but one machine has all that can hold it",
			w.Kinds[j.Kind].Name, gpus(j.GPUs), t.Name)
	}
	return fmt.Sprintf("kind %q runs on %s of type %q only within one machine (it has no spread_speed), but a machine has %s that can hold it",
		w.Kinds[j.Kind].Name, gpus(j.GPUs), t.Name, atMost(a.most))
}

// lacksMixed returns "" if a set of GPUs of several types can hold the job, otherwise the reason. It tries the sets of
// [placer.any].
func (c *Cluster) lacksMixed(j *Job, w *Workload, s Speeds) string {
	set := c.mixedSet(j, w, s, j.GPUs)
	switch {
	case set.left > 0 && set.without >= 0:
		return fmt.Sprintf("it lacks a speed on 1 GPU of type %q", c.Types[set.without].Name)
	case set.left > 0:
		return "too few GPUs fit at the same time"
	}
	if speed, ok := s.Mixed(j.Kind, set.counts, set.machines > 1); ok && speed > 0 {
		return ""
	}
	if set.machines == 1 { // the job may run over several machines
		if next := c.mixedSet(j, w, s, j.GPUs-1); next.left == 0 {
			set = next
			if speed, ok := s.Mixed(j.Kind, set.counts, true); ok && speed > 0 && set.types() > 1 {
				return ""
			}
		}
	}
	if measured, can := s.(MeasuredSpeeds); can {
		switch t, figure := measured.Lacks(j.Kind, set.counts, set.machines > 1); {
		case figure != "" && t >= 0:
			return fmt.Sprintf("it lacks a %s of type %q", figure, c.Types[t].Name)
		case figure != "":
			return "it lacks a " + figure
		}
	}
	return "the curves have too few samples for the batch, or the speeds are 0"
}

// mixedSet describes GPUs that fit a job in an empty cluster.
type mixedSet struct {
	counts   []int // by type
	left     int   // GPUs that the job still lacks
	without  int   // a type on which the job has no speed, or -1
	machines int   // with GPUs of the set
}

// types returns the number of types in the set.
func (m *mixedSet) types() (n int) {
	for _, k := range m.counts {
		n += min(k, 1)
	}
	return n
}

// mixedSet returns the GPUs that fit, in order, at most some of each machine.
func (c *Cluster) mixedSet(j *Job, w *Workload, s Speeds, most int) mixedSet {
	set := mixedSet{counts: make([]int, len(c.Types)), left: j.GPUs, without: -1}
	for i := range c.Machines {
		m, before := &c.Machines[i], set.left
		n := min(most, Multiples(m.CPUs, j.CPUs), Multiples(m.Memory, j.Memory))
		for _, g := range m.GPUs {
			t := c.GPUs[g].Type
			if n == 0 || set.left == 0 {
				break
			}
			if w.Kinds[j.Kind].GPUMemory > c.Types[t].Memory {
				continue
			}
			if !(s.Alone(j.Kind, t, 1, false) > 0) {
				set.without = t
				continue
			}
			set.counts[t]++
			n--
			set.left--
		}
		if set.left < before {
			set.machines++
		}
	}
	return set
}
