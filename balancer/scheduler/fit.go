package scheduler

import (
	"fmt"
	"slices"
)

// Refusal is the reason why a job cannot start on GPUs.
type Refusal int

const (
	Fits         Refusal = iota
	NotQueued            // the job does not wait
	WrongCount           // the job needs another number of GPUs
	BadList              // GPUs are not ascending, or do not exist
	Unavailable          // a GPU is not available
	Occupied             // a GPU has another job that cannot share it with this job
	TooLittleGPU         // the memory of a GPU is too small
	TooFewCPUs           // a machine has too few free CPU cores
	TooLittleMem         // a machine has too little free memory
	NoSpeed              // the kind does not run on these GPUs
)

var refusals = [...]string{"it fits", "the job does not wait in the queue", "the job needs another number of GPUs",
	"the list of GPUs is not ascending or names GPUs that do not exist", "a GPU is not available",
	"a GPU has a job that cannot share it with this job", "the memory of a GPU is too small",
	"a machine has too few free CPU cores", "a machine has too little free memory",
	"the kind of job does not run on these GPUs"}

func (r Refusal) String() string {
	if r < 0 || int(r) >= len(refusals) {
		return fmt.Sprintf("Refusal(%d)", int(r))
	}
	return refusals[r]
}

// slack is the largest relative rounding error of sums of requested resources.
const slack = 1e-9

// Spread reports whether GPUs belong to several machines.
func (c *Cluster) Spread(gpus []int) bool {
	for _, g := range gpus[1:] {
		if c.GPUs[g].Machine != c.GPUs[gpus[0]].Machine {
			return true
		}
	}
	return false
}

// Uniform reports whether all GPUs have the same type.
func (c *Cluster) Uniform(gpus []int) bool {
	for _, g := range gpus[1:] {
		if c.GPUs[g].Type != c.GPUs[gpus[0]].Type {
			return false
		}
	}
	return true
}

// Fit returns the speed of a job of the queue on GPUs, in steps/s, without the limits of the network. If the job cannot
// start there, Fit returns the reason. If another job runs on exactly these GPUs, the two jobs share them. Fit does not
// change the state.
func (s *State) Fit(job int, gpus []int) (speed float64, why Refusal) {
	if why := s.admit(job, gpus); why != Fits {
		return 0, why
	}
	partner := -1
	if on := s.OnGPU[gpus[0]]; len(on) > 0 {
		partner = on[0]
	}
	if speed = s.Rate(job, gpus, partner); !(speed > 0) {
		return 0, NoSpeed
	}
	if partner >= 0 && !(s.Rate(partner, gpus, job) > 0) {
		return 0, Occupied
	}
	return speed, Fits
}

// Rate returns the speed in steps/s of a job on GPUs, together with a partner on the same GPUs (-1: no partner). It
// ignores the limits of the network. The speed is 0 if the job does not run on these GPUs.
//
// [Speeds.Shared] gives the speeds within one machine. A pair on several machines is slower by the same factor as the
// job alone.
func (s *State) Rate(job int, gpus []int, partner int) float64 {
	kind, n := s.Workload.Jobs[job].Kind, len(gpus)
	spread := s.Cluster.Spread(gpus)
	if !s.Cluster.Uniform(gpus) {
		if partner >= 0 {
			return 0
		}
		return s.mixed(kind, gpus, spread)
	}
	typ := s.Cluster.GPUs[gpus[0]].Type
	alone := s.Speeds.Alone(kind, typ, n, spread)
	if partner < 0 {
		return alone
	}
	shared, ok := s.Speeds.Shared(kind, s.Workload.Jobs[partner].Kind, typ, n)
	if !ok {
		return 0
	}
	if spread {
		packed := s.Speeds.Alone(kind, typ, n, false)
		if !(packed > 0) {
			return 0
		}
		shared *= alone / packed
	}
	return shared
}

func (s *State) mixed(kind int, gpus []int, spread bool) float64 {
	counts := make([]int, len(s.Cluster.Types))
	for _, g := range gpus {
		counts[s.Cluster.GPUs[g].Type]++
	}
	if speed, ok := s.Speeds.Mixed(kind, counts, spread); ok {
		return speed
	}
	return 0
}

// admit checks everything except the speed.
func (s *State) admit(job int, gpus []int) Refusal {
	if job < 0 || job >= len(s.Workload.Jobs) {
		return NotQueued
	}
	j := &s.Workload.Jobs[job]
	if len(gpus) != j.GPUs {
		return WrongCount
	}
	need := s.Workload.Kinds[j.Kind].GPUMemory
	shared := -1
	for i, g := range gpus {
		if g < 0 || g >= len(s.Cluster.GPUs) || i > 0 && gpus[i-1] >= g {
			return BadList
		}
		if !s.Up[g] {
			return Unavailable
		}
		on := s.OnGPU[g]
		if len(on) >= MaxSharing || i > 0 && (len(on) == 1) != (shared >= 0) {
			return Occupied
		}
		total := need
		if len(on) == 1 {
			if i > 0 && on[0] != shared {
				return Occupied
			}
			shared = on[0]
			other := &s.Workload.Jobs[shared]
			if other.GPUs != j.GPUs {
				return Occupied
			}
			total += s.Workload.Kinds[other.Kind].GPUMemory
		}
		if total > s.Cluster.Types[s.Cluster.GPUs[g].Type].Memory {
			return TooLittleGPU
		}
	}
	return s.hosts(j, gpus)
}

// hosts checks CPU cores and memory of machines.
func (s *State) hosts(j *Job, gpus []int) Refusal {
	for i, g := range gpus {
		m := s.Cluster.GPUs[g].Machine
		n := 1.0
		for _, h := range gpus[:i] {
			if s.Cluster.GPUs[h].Machine == m {
				n++
			}
		}
		if j.CPUs*n > s.FreeCPUs[m]+slack*s.Cluster.Machines[m].CPUs {
			return TooFewCPUs
		}
		if j.Memory*n > s.FreeMem[m]+slack*s.Cluster.Machines[m].Memory {
			return TooLittleMem
		}
	}
	return Fits
}

// Holds returns nil if the empty cluster can hold a job, otherwise an [*UnplaceableError]. For GPUs of several types,
// it tries only the sets that all policies try: see [placer.any].
func Holds(c *Cluster, w *Workload, s Speeds, job int) error { return c.vacant().holds(w, s, job) }

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

// atMost describes the largest number of GPUs in words.
func atMost(n int) string {
	if n == 0 {
		return gpus(n)
	}
	return "at most " + gpus(n)
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

// Multiples returns how often a demand fits into a capacity. The result is at most 1<<30, even for a demand of 0. It is
// at least 0, even for a capacity below 0: a reservation may need more than is free now. A relative rounding error of
// 1e-9 in the capacity has no effect.
func Multiples(have, need float64) int {
	if need <= 0 {
		return 1 << 30
	}
	return int(max(0, min(1<<30, (have*(1+slack))/need)))
}

// maxMachines is the largest number of machines for which [State.Place] allocates no memory.
const maxMachines = 64

// Place finds free GPUs of one type for a job, without sharing, and appends them to gpus in ascending order. If several
// machines can hold the whole job, Place takes the one with the fewest free GPUs after the start; ties go to the lower
// machine. If no machine can, or if the job runs only over several machines, Place takes machines with the most usable
// GPUs first, so that the job spans few machines. ok is false if the job does not run on these GPUs, or if CPU cores or
// memory are short. speed is the speed that [State.Fit] returns.
func (s *State) Place(job, typ int, gpus []int) (chosen []int, speed float64, ok bool) {
	j := &s.Workload.Jobs[job]
	if s.Workload.Kinds[j.Kind].GPUMemory > s.Cluster.Types[typ].Memory {
		return gpus, 0, false
	}
	var few [maxMachines]int
	usable := few[:]
	if len(s.Cluster.Machines) > maxMachines {
		usable = make([]int, len(s.Cluster.Machines))
	}
	best, total, machines := -1, 0, 0
	for i := range s.Cluster.Machines {
		n := s.usable(j, i, typ)
		usable[i] = n
		total += n
		machines += min(n, 1)
		if n >= j.GPUs && (best < 0 || n < usable[best]) {
			best = i
		}
	}
	if total < j.GPUs {
		return gpus, 0, false
	}
	start := len(gpus)
	if best >= 0 {
		if speed = s.Speeds.Alone(j.Kind, typ, j.GPUs, false); speed > 0 {
			return s.take(gpus, best, typ, j.GPUs), speed, true
		}
	}
	if speed = s.Speeds.Alone(j.Kind, typ, j.GPUs, true); !(speed > 0) || machines == 1 || j.GPUs == 1 {
		return gpus, 0, false
	}
	for left := j.GPUs; left > 0; {
		most := 0
		for i := range s.Cluster.Machines {
			if usable[i] > usable[most] {
				most = i
			}
		}
		n := min(left, usable[most], j.GPUs-1) // not all on one machine
		gpus = s.take(gpus, most, typ, n)
		usable[most] = 0
		left -= n
	}
	slices.Sort(gpus[start:])
	return gpus, speed, true
}

// usable returns how many free GPUs of a type on a machine a job can use at the same time.
func (s *State) usable(j *Job, machine, typ int) int {
	m := &s.Cluster.Machines[machine]
	free := 0
	for _, g := range m.GPUs {
		if s.Up[g] && len(s.OnGPU[g]) == 0 && s.Cluster.GPUs[g].Type == typ {
			free++
		}
	}
	if free == 0 {
		return 0
	}
	if j.CPUs*float64(free) <= s.FreeCPUs[machine] && j.Memory*float64(free) <= s.FreeMem[machine] {
		return free
	}
	return min(free, Multiples(s.FreeCPUs[machine], j.CPUs), Multiples(s.FreeMem[machine], j.Memory))
}

// take appends n free GPUs of a type on a machine, in ascending order.
func (s *State) take(gpus []int, machine, typ, n int) []int {
	for _, g := range s.Cluster.Machines[machine].GPUs {
		if n == 0 {
			break
		}
		if s.Up[g] && len(s.OnGPU[g]) == 0 && s.Cluster.GPUs[g].Type == typ {
			gpus = append(gpus, g)
			n--
		}
	}
	return gpus
}
