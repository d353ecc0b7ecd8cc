package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// placer chooses GPUs for policies. The zero value is ready after reset.
type placer struct {
	explain bool
	shapes  shapes
	mixed   []bool // by job: the job does not fit on GPUs of one type
	index   freeIndex
	free    []int // by type: free GPUs
	best    []int
	try     []int
}

func (p *placer) reset(c *Cluster, w *Workload, s Speeds) {
	p.free = make([]int, len(c.Types))
	p.best, p.try = make([]int, 0, len(c.GPUs)), make([]int, 0, len(c.GPUs))
	p.index.reset(c)
	p.shapes.reset(w)
	mixed := make([]bool, len(p.shapes.first))
	for i, job := range p.shapes.first {
		mixed[i] = !c.holdsUniform(&w.Jobs[job], w.Kinds[w.Jobs[job].Kind].GPUMemory, s)
	}
	p.mixed = make([]bool, len(w.Jobs))
	for i, shape := range p.shapes.of {
		p.mixed[i] = mixed[shape]
	}
}

// Incremental implements [Incremental].
func (p *placer) Incremental() bool { return true }

// count counts the free GPUs of each type, and returns their sum.
func (p *placer) count(s *State) (total int) { return p.countOf(s, &p.index) }

// countOf is count with the index of another state.
func (p *placer) countOf(s *State, x *freeIndex) (total int) {
	x.sync(s)
	for t, n := range x.free {
		p.free[t] = n
		total += n
	}
	return total
}

// fastest finds the free GPUs of one type on which a job is fastest; ties go to the lower type. For a job that does not
// fit on GPUs of one type, it takes free GPUs of all types in order. Call count first. The slice is valid until the
// next call.
func (p *placer) fastest(s *State, job int) (gpus []int, speed float64, ok bool) {
	return p.fastestOf(s, &p.index, job)
}

// fastestOf is fastest with the index of another state.
func (p *placer) fastestOf(s *State, x *freeIndex, job int) (gpus []int, speed float64, ok bool) {
	typ, speed := p.speediest(s, x, job)
	if typ >= 0 {
		p.best, speed, ok = x.place(s, job, typ, p.best[:0])
		return p.best, speed, ok
	}
	if p.mixed[job] {
		return p.any(s, job)
	}
	return p.best, 0, false
}

// speediest returns the type of the free GPUs on which a job is fastest, and its speed; -1 if there are none.
func (p *placer) speediest(s *State, x *freeIndex, job int) (typ int, speed float64) {
	typ = -1
	for t, free := range p.free {
		if free < s.Workload.Jobs[job].GPUs {
			continue
		}
		if v := x.speed(s, job, t, p.try[:0]); v > speed {
			typ, speed = t, v
		}
	}
	return typ, speed
}

// place is [State.Place] on the state of the last count.
func (p *placer) place(s *State, job, typ int) (gpus []int, speed float64, ok bool) {
	return p.index.place(s, job, typ, p.best[:0])
}

// first is like fastest, but takes the first type that fits.
func (p *placer) first(s *State, job int) (gpus []int, speed float64, ok bool) {
	p.index.sync(s)
	for t := range s.Cluster.Types {
		if chosen, v, fits := p.place(s, job, t); fits {
			return chosen, v, true
		}
	}
	if p.mixed[job] {
		return p.any(s, job)
	}
	return nil, 0, false
}

// any returns free GPUs of all types in order.
func (p *placer) any(s *State, job int) (gpus []int, speed float64, ok bool) {
	j := &s.Workload.Jobs[job]
	gpus = p.best[:0]
	for m := range s.Cluster.Machines {
		n := min(Multiples(s.FreeCPUs[m], j.CPUs), Multiples(s.FreeMem[m], j.Memory))
		for _, g := range s.Cluster.Machines[m].GPUs {
			t := s.Cluster.GPUs[g].Type
			if n > 0 && len(gpus) < j.GPUs && s.Up[g] && len(s.OnGPU[g]) == 0 &&
				s.Workload.Kinds[j.Kind].GPUMemory <= s.Cluster.Types[t].Memory &&
				s.Speeds.Alone(j.Kind, t, 1, false) > 0 {
				gpus = append(gpus, g)
				n--
			}
		}
	}
	slices.Sort(gpus)
	p.best = gpus
	speed, why := s.Fit(job, gpus)
	return gpus, speed, why == Fits
}

// why returns the reason for the GPUs of a job: usual, or that no single type can hold the job.
func (p *placer) why(s *State, job int, gpus []int, usual string) string {
	if p.mixed[job] {
		return "no type alone can hold the job, so it gets free GPUs of several types: " + s.types(gpus)
	}
	return usual
}

// seconds formats a time for a reason.
func seconds(v float64) string {
	if v >= 1e9 {
		return fmt.Sprintf("%.3g s", v)
	}
	return fmt.Sprintf("%.0f s", v)
}

// types names the types of GPUs: "4 x volta" or "2 x volta and 2 x turing".
func (s *State) types(gpus []int) string {
	text := ""
	for t := range s.Cluster.Types {
		n := 0
		for _, g := range gpus {
			if s.Cluster.GPUs[g].Type == t {
				n++
			}
		}
		if n > 0 {
			if text != "" {
				text += " and "
			}
			text += fmt.Sprintf("%d x %s", n, s.Cluster.Types[t].Name)
		}
	}
	return text
}

// fastestSpeed returns the speed of a job on its fastest type of GPU, within one machine, in steps/s. It returns 0 if
// the job does not run on any single type.
func fastestSpeed(c *Cluster, j *Job, s Speeds) (best float64) {
	for t := range c.Types {
		best = max(best, s.Alone(j.Kind, t, j.GPUs, false))
	}
	return best
}

// slowestSpeed returns the speed of a job on one GPU of its slowest type, in steps/s. It returns 0 if the job does not
// run on any type.
func slowestSpeed(c *Cluster, j *Job, s Speeds) float64 {
	slowest := math.Inf(1)
	for t := range c.Types {
		if v := s.Alone(j.Kind, t, 1, false); v > 0 {
			slowest = min(slowest, v)
		}
	}
	if math.IsInf(slowest, 1) {
		return 0
	}
	return slowest
}

// holdsUniform reports whether a job fits on GPUs of one type of an empty cluster.
func (c *Cluster) holdsUniform(j *Job, gpuMemory float64, s Speeds) bool {
	var memory, host bool
	for t := range c.Types {
		n, spread := c.room(j, gpuMemory, t, &memory, &host)
		if n >= j.GPUs && (s.Alone(j.Kind, t, j.GPUs, true) > 0 || !spread && s.Alone(j.Kind, t, j.GPUs, false) > 0) {
			return true
		}
	}
	return false
}

// EmptySpeed returns the speed of a job on GPUs of a type of an empty cluster, in steps/s. It returns 0 if the job does
// not fit there.
func (c *Cluster) EmptySpeed(j *Job, w *Workload, s Speeds, typ int) float64 {
	var memory, host bool
	n, spread := c.room(j, w.Kinds[j.Kind].GPUMemory, typ, &memory, &host)
	if n < j.GPUs {
		return 0
	}
	return s.Alone(j.Kind, typ, j.GPUs, spread)
}
