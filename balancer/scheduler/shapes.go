package scheduler

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
)

// shape determines where a job fits, and its speed there.
type shape struct {
	kind, gpus   int
	cpus, memory float64
}

func (j *Job) shape() shape { return shape{j.Kind, j.GPUs, j.CPUs, j.Memory} }

// demand contains the CPU cores and the memory that a job needs for each GPU.
type demand struct{ cpus, memory float64 }

// covers reports whether a job with the other demand fits wherever a job with this demand fits.
func (a demand) covers(b demand) bool { return b.cpus <= a.cpus && b.memory <= a.memory }

// class determines the speed of a job. Shapes of one class differ only in their demands.
type class struct {
	kind, gpus int
	size       int    // index into shapes.sizes
	least      demand // at most the demands of its shapes
	most       demand // at least the demands of its shapes
	shapes     int    // number of its shapes
	mixed      bool   // some of its jobs do not fit on GPUs of one type
	apart      bool   // on some type, a job runs only over several machines
}

// shapes numbers the shapes of the jobs of a workload, their classes and their demands.
type shapes struct {
	of    []int // by job: its shape
	first []int // by shape: the first job that has it

	class    []int // by shape
	classes  []class
	sizes    []int     // different numbers of GPUs of a job
	demand   []int     // by shape: index into demands
	demands  []demand  // those of limits.Demands-1 with the most jobs have data structures of their own
	frequent []bool    // by demand: has data structures
	mixed    []bool    // by shape: its jobs do not fit on GPUs of one type
	types    int       // of GPUs
	rates    []float64 // by class, type, and whether the GPUs are on several machines: steps/s, 0 if it does not run
}

func (v *shapes) reset(c *Cluster, w *Workload, s Speeds) {
	*v = shapes{of: make([]int, len(w.Jobs)), first: v.first[:0], class: v.class[:0], classes: v.classes[:0],
		sizes: v.sizes[:0], demand: v.demand[:0], demands: v.demands[:0], frequent: v.frequent[:0], mixed: v.mixed[:0],
		types: len(c.Types), rates: v.rates[:0]}
	known, demands, classes := map[shape]int{}, map[demand]int{}, map[[2]int]int{}
	empty := c.vacant()
	var jobs []int // by demand
	for i := range w.Jobs {
		key := w.Jobs[i].shape()
		n, ok := known[key]
		if !ok {
			n = len(v.first)
			known[key] = n
			v.first = append(v.first, i)
			d, ok := demands[demand{key.cpus, key.memory}]
			if !ok {
				d = len(v.demands)
				v.demands, jobs = append(v.demands, demand{key.cpus, key.memory}), append(jobs, 0)
				demands[v.demands[d]] = d
			}
			v.demand = append(v.demand, d)
			k, ok := classes[[2]int{key.kind, key.gpus}]
			if !ok {
				k = len(v.classes)
				classes[[2]int{key.kind, key.gpus}] = k
				v.addClass(c, w, s, key)
			}
			v.class = append(v.class, k)
			m := !empty.holdsUniform(&w.Jobs[i], w, s)
			v.mixed = append(v.mixed, m)
			v.classes[k].mixed = v.classes[k].mixed || m
			v.classes[k].least.cpus = min(v.classes[k].least.cpus, key.cpus)
			v.classes[k].least.memory = min(v.classes[k].least.memory, key.memory)
			v.classes[k].most.cpus = max(v.classes[k].most.cpus, key.cpus)
			v.classes[k].most.memory = max(v.classes[k].most.memory, key.memory)
			v.classes[k].shapes++
		}
		v.of[i] = n
		jobs[v.demand[n]]++
	}
	v.choose(jobs)
}

// addClass adds the class of a shape.
func (v *shapes) addClass(c *Cluster, w *Workload, s Speeds, key shape) {
	at := class{kind: key.kind, gpus: key.gpus, size: slices.Index(v.sizes, key.gpus),
		least: demand{math.Inf(1), math.Inf(1)}}
	if at.size < 0 {
		at.size = len(v.sizes)
		v.sizes = append(v.sizes, key.gpus)
	}
	for t := range c.Types {
		packed, spread := 0.0, 0.0
		if w.Kinds[key.kind].GPUMemory <= c.Types[t].Memory {
			packed, spread = s.Alone(key.kind, t, key.gpus, false), s.Alone(key.kind, t, key.gpus, true)
		}
		if !(packed > 0) {
			packed = 0
		}
		if !(spread > 0) || key.gpus == 1 && packed == 0 {
			spread = 0
		}
		at.apart = at.apart || packed == 0 && spread > 0
		v.rates = append(v.rates, packed, spread)
	}
	v.classes = append(v.classes, at)
}

// choose chooses the demands with data structures of their own: those of the most jobs.
func (v *shapes) choose(jobs []int) {
	v.frequent = append(v.frequent, make([]bool, len(v.demands))...)
	order := make([]int, len(v.demands))
	for d := range order {
		order[d] = d
	}
	if most := limits.Demands - 1; len(order) > most { // one belongs to jobs that need neither CPU cores nor memory
		slices.SortStableFunc(order, func(a, b int) int { return jobs[b] - jobs[a] })
		order = order[:most]
	}
	for _, d := range order {
		v.frequent[d] = true
	}
}

// speeds returns the speeds of jobs of a class on free GPUs of a type, within one machine and on several, in steps/s; 0
// if they do not run there.
func (v *shapes) speeds(class, typ int) (packed, spread float64) {
	at := 2 * (class*v.types + typ)
	return v.rates[at], v.rates[at+1]
}

// classOf returns the class of a job.
func (v *shapes) classOf(job int) int { return v.class[v.of[job]] }

// sizeOf returns the index of a job's number of GPUs in sizes.
func (v *shapes) sizeOf(job int) int { return v.classes[v.classOf(job)].size }

// need returns the demand of a job.
func (v *shapes) need(job int) demand { return v.demands[v.demand[v.of[job]]] }

// kin returns for each shape the first shape of the same class that also fits, or also does not fit, on GPUs of one
// type. Their jobs run at the same speeds, but fit on different GPUs.
func (v *shapes) kin() []int {
	first := make([][2]int, len(v.classes)) // plus 1
	of := make([]int, len(v.class))
	for shape, class := range v.class {
		at := &first[class][0]
		if v.mixed[shape] {
			at = &first[class][1]
		}
		if *at == 0 {
			*at = shape + 1
		}
		of[shape] = *at - 1
	}
	return of
}
