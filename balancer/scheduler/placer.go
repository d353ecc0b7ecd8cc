package scheduler

import (
	"math"
	"slices"
)

// placer chooses GPUs for policies. The zero value is ready after reset.
type placer struct {
	explain bool
	shapes  shapes
	index   freeIndex
	free    []int   // by type: free GPUs
	asked   answers // about index and free
	best    []int
}

func (p *placer) reset(c *Cluster, w *Workload, s Speeds) {
	p.free = make([]int, len(c.Types))
	p.best = make([]int, 0, len(c.GPUs))
	p.shapes.reset(c, w, s)
	p.index.reset(c, &p.shapes)
	p.asked.reset(&p.shapes)
}

// mixed reports whether a job does not fit on GPUs of one type.
func (p *placer) mixed(job int) bool { return p.shapes.mixed[p.shapes.of[job]] }

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
	if p.mixed(job) {
		return p.any(s, job)
	}
	return p.best, 0, false
}

// speediest returns the type of the free GPUs on which a job is fastest, and its speed; -1 if there are none.
func (p *placer) speediest(s *State, x *freeIndex, job int) (typ int, speed float64) {
	shape := p.shapes.of[job]
	n := p.shapes.classes[p.shapes.class[shape]].gpus
	typ = -1
	for t, free := range p.free {
		if free < n {
			continue
		}
		if v := x.speed(s, shape, t); v > speed {
			typ, speed = t, v
		}
	}
	return typ, speed
}

// fits returns whether fastestOf finds GPUs for a job, and the speed of the job on them.
func (p *placer) fits(s *State, x *freeIndex, job int) (speed float64, ok bool) {
	typ, speed := p.speediest(s, x, job)
	if typ < 0 && p.mixed(job) {
		_, speed, ok = p.any(s, job)
		return speed, ok
	}
	return speed, typ >= 0
}

// fastestRate returns a speed in steps/s that no job of a class exceeds on the GPUs that fastest would choose. It is 0
// if no job of the class fits, and +Inf if the speed is not known. Unlike fastest, it ignores CPU cores and memory.
func (p *placer) fastestRate(class int) (best float64) {
	k := &p.shapes.classes[class]
	if k.mixed {
		return math.Inf(1)
	}
	for t, free := range p.free {
		if free >= k.gpus {
			packed, spread := p.shapes.speeds(class, t)
			best = max(best, packed, spread)
		}
	}
	return best
}

// answers keeps for one decision which shapes of jobs are refused. If a job does not fit, no job of its class fits that
// needs at least as many CPU cores and as much memory. The zero value is ready after reset.
type answers struct {
	shapes *shapes
	turn   int // number of the decision
	shape  []answer
	class  []refusal
}

// answer is the answer for a shape.
type answer struct {
	turn  int // it is valid in this decision
	ok    bool
	speed float64 // steps/s
}

// refusal is a demand with which jobs of a class do not fit.
type refusal struct {
	turn int // it is valid in this decision
	demand
}

func (a *answers) reset(v *shapes) {
	*a = answers{shapes: v, turn: 1, shape: make([]answer, len(v.first)), class: make([]refusal, len(v.classes))}
}

// begin makes all answers invalid.
func (a *answers) begin() { a.turn++ }

// accept records that jobs of a shape fit.
func (a *answers) accept(shape int, speed float64) { a.shape[shape] = answer{a.turn, true, speed} }

// refuseOnly records that jobs of a shape are refused, for a reason that does not hold for larger demands.
func (a *answers) refuseOnly(shape int) { a.shape[shape] = answer{turn: a.turn} }

// refuse records that jobs of a shape do not fit.
func (a *answers) refuse(shape int) {
	v := a.shapes
	a.refuseOnly(shape)
	class := v.class[shape]
	if v.mixed[shape] {
		return
	}
	d, old := v.demands[v.demand[shape]], &a.class[class]
	if old.turn != a.turn || old.covers(d) {
		*old = refusal{a.turn, d}
	}
}

// refuseAll records that no job of a class fits on GPUs of one type, independent of CPU cores and memory.
func (a *answers) refuseAll(class int) { a.class[class] = refusal{turn: a.turn} }

// own reports whether a shape has an answer that does not follow from the demand of another one.
func (a *answers) own(shape int) bool { return a.shape[shape].turn == a.turn }

// of returns the answer for a shape; known is false if there is none yet.
func (a *answers) of(shape int) (is answer, known bool) {
	v := a.shapes
	if is = a.shape[shape]; is.turn == a.turn {
		return is, true
	}
	if r := &a.class[v.class[shape]]; r.turn == a.turn && !v.mixed[shape] &&
		v.demands[v.demand[shape]].covers(r.demand) {
		return answer{}, true
	}
	return answer{}, false
}

// none reports whether all jobs of a class are refused.
func (a *answers) none(class int) bool {
	k, r := &a.shapes.classes[class], &a.class[class]
	return r.turn == a.turn && !k.mixed && k.least.covers(r.demand)
}

// ask is like fits, but uses the answers of this decision that are known.
func (p *placer) ask(s *State, x *freeIndex, a *answers, job int) (speed float64, ok bool) {
	shape := p.shapes.of[job]
	if is, known := a.of(shape); known {
		return is.speed, is.ok
	}
	if speed, ok = p.fits(s, x, job); !ok {
		a.refuse(shape)
		if class := p.shapes.class[shape]; p.fastestRate(class) == 0 {
			a.refuseAll(class)
		}
		return 0, false
	}
	a.accept(shape, speed)
	return speed, true
}

// place is [State.Place] on the state of the last count. The slice is valid until the next call.
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
	if p.mixed(job) {
		return p.any(s, job)
	}
	return nil, 0, false
}

// any returns free GPUs of all types in order. If these are on one machine, and the job does not run there, any leaves
// the last one to the next machine. It tries no other sets: a job may wait although the GPUs of a later machine, or a
// set of other types, would do.
func (p *placer) any(s *State, job int) (gpus []int, speed float64, ok bool) {
	n := s.Workload.Jobs[job].GPUs
	if gpus, speed, ok = p.anyOf(s, job, n); !ok && n > 1 && len(gpus) == n && !s.Cluster.Spread(gpus) {
		return p.anyOf(s, job, n-1)
	}
	return gpus, speed, ok
}

// anyOf returns free GPUs of all types in order, at most some of each machine.
func (p *placer) anyOf(s *State, job, most int) (gpus []int, speed float64, ok bool) {
	j := &s.Workload.Jobs[job]
	gpus = p.best[:0]
	for m := range s.Cluster.Machines {
		n := min(most, Multiples(s.FreeCPUs[m], j.CPUs), Multiples(s.FreeMem[m], j.Memory))
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
	if p.mixed(job) {
		return "no type alone can hold the job, so it gets free GPUs of several types: " + s.types(gpus)
	}
	return usual
}

// topSpeeds returns by job the [fastestSpeed] in steps/s. A job that does not fit on GPUs of one type has the speed of
// as many GPUs of its slowest type. Call reset first.
func (p *placer) topSpeeds(c *Cluster, w *Workload, s Speeds) []float64 {
	rates := make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if rates[i] = fastestSpeed(c, j, s); p.mixed(i) {
			rates[i] = float64(j.GPUs) * slowestSpeed(c, j, s)
		}
	}
	return rates
}
