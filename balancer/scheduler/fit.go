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
