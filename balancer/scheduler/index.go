package scheduler

import (
	"math/bits"
	"slices"
)

// freeIndex finds free GPUs of a state in a time that hardly depends on the number of GPUs. The zero value is ready
// after reset. Call sync before any other method, whenever the state may have changed.
type freeIndex struct {
	reader
	cluster *Cluster
	types   int
	free    []int    // by type: free GPUs
	count   []int    // by machine and type: free GPUs
	is      []bitset // by type: whether a GPU is free

	moved   changes // machines on which free GPUs, CPU cores or memory have changed
	demands map[demand]*rooms
	any     *rooms // of jobs that need neither CPU cores nor memory
}

// demand is what a job needs on a machine for each GPU.
type demand struct{ cpus, memory float64 }

// maxDemands is the largest number of different demands with data structures of their own. Each takes time at each
// change. Jobs with other demands search all machines.
const maxDemands = 64

// bitset is a set of numbers.
type bitset []uint64

func (b bitset) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b bitset) unset(i int) { b[i/64] &^= 1 << (i % 64) }
func (b bitset) has(i int) bool {
	return b[i/64]&(1<<(i%64)) != 0
}

// next returns the first number of the set that is at least i, or -1.
func (b bitset) next(i int) int {
	w := i / 64
	if w >= len(b) {
		return -1
	}
	v := b[w] >> (i % 64)
	if v != 0 {
		return i + bits.TrailingZeros64(v)
	}
	for w++; w < len(b); w++ {
		if b[w] != 0 {
			return w*64 + bits.TrailingZeros64(b[w])
		}
	}
	return -1
}

// rooms states for one demand how many free GPUs of each type a job can use on each machine.
type rooms struct {
	demand
	at     int        // position in freeIndex.moved
	usable []int      // by machine and type
	total  []int      // by type
	sets   [][]bitset // by type and number of usable GPUs: the machines; nil if there was none
	size   [][]int    // by type and number of usable GPUs: the number of machines
}

func (x *freeIndex) reset(c *Cluster) {
	*x = freeIndex{cluster: c, types: len(c.Types), free: make([]int, len(c.Types)),
		count: make([]int, len(c.Machines)*len(c.Types)), is: make([]bitset, len(c.Types)), moved: x.moved,
		demands: map[demand]*rooms{}}
	x.moved.reset()
	for t := range x.is {
		x.is[t] = make(bitset, (len(c.GPUs)+63)/64)
	}
	x.any = x.add(demand{})
}

func (x *freeIndex) add(d demand) *rooms {
	r := &rooms{demand: d, at: -1, usable: make([]int, len(x.count)), total: make([]int, x.types),
		sets: make([][]bitset, x.types), size: make([][]int, x.types)}
	most := make([]int, x.types) // GPUs of a machine
	have := make([]int, x.types)
	for m := range x.cluster.Machines {
		clear(have)
		for _, g := range x.cluster.Machines[m].GPUs {
			t := x.cluster.GPUs[g].Type
			have[t]++
			most[t] = max(most[t], have[t])
		}
	}
	for t := range most {
		r.sets[t], r.size[t] = make([]bitset, most[t]+1), make([]int, most[t]+1)
	}
	x.demands[d] = r
	return r
}

// sync updates the index to a state.
func (x *freeIndex) sync(s *State) {
	list, ok := x.gpus(s)
	if !ok {
		clear(x.free)
		clear(x.count)
		for t := range x.is {
			clear(x.is[t])
		}
		for g, up := range s.Up {
			if up && len(s.OnGPU[g]) == 0 {
				x.change(g, 1)
			}
		}
		x.moved.reset()
		return
	}
	last := -1
	for _, g := range list {
		x.flip(s, g)
		if m := s.Cluster.GPUs[g].Machine; m != last {
			x.moved.add(m)
			last = m
		}
	}
}

// touch updates the index after a change of a GPU.
func (x *freeIndex) touch(s *State, g int) {
	x.flip(s, g)
	x.moved.add(s.Cluster.GPUs[g].Machine)
}

// flip updates the numbers of free GPUs after a change of a GPU.
func (x *freeIndex) flip(s *State, g int) {
	if free := s.Up[g] && len(s.OnGPU[g]) == 0; free != x.is[s.Cluster.GPUs[g].Type].has(g) {
		if free {
			x.change(g, 1)
		} else {
			x.change(g, -1)
		}
	}
}

func (x *freeIndex) change(g, by int) {
	p := &x.cluster.GPUs[g]
	x.free[p.Type] += by
	x.count[p.Machine*x.types+p.Type] += by
	if by > 0 {
		x.is[p.Type].set(g)
	} else {
		x.is[p.Type].unset(g)
	}
}

// rooms returns the data structure for the demand of a job, or nil if there are too many different demands.
func (x *freeIndex) rooms(s *State, j *Job) *rooms {
	d := demand{j.CPUs, j.Memory}
	r := x.demands[d]
	if r == nil {
		if len(x.demands) >= maxDemands {
			return nil
		}
		r = x.add(d)
	}
	x.update(s, r)
	return r
}

func (x *freeIndex) update(s *State, r *rooms) {
	list, ok := x.moved.since(r.at)
	r.at = x.moved.end()
	if !ok || len(list) > len(x.cluster.Machines) {
		clear(r.usable)
		clear(r.total)
		for t := range r.sets {
			clear(r.size[t])
			for _, set := range r.sets[t] {
				clear(set)
			}
		}
		for m := range x.cluster.Machines {
			r.move(x, s, m)
		}
		return
	}
	for _, m := range list {
		r.move(x, s, m)
	}
}

// move updates the entries of a machine.
func (r *rooms) move(x *freeIndex, s *State, m int) {
	for t := range x.types {
		at := m*x.types + t
		n := x.count[at]
		if n > 0 && !(r.cpus*float64(n) <= s.FreeCPUs[m] && r.memory*float64(n) <= s.FreeMem[m]) {
			n = min(n, Multiples(s.FreeCPUs[m], r.cpus), Multiples(s.FreeMem[m], r.memory))
		}
		old := r.usable[at]
		if n == old {
			continue
		}
		if old > 0 {
			r.sets[t][old].unset(m)
			r.size[t][old]--
		}
		if n > 0 {
			if r.sets[t][n] == nil {
				r.sets[t][n] = make(bitset, (len(x.cluster.Machines)+63)/64)
			}
			r.sets[t][n].set(m)
			r.size[t][n]++
		}
		r.usable[at] = n
		r.total[t] += n - old
	}
}

// least returns the machine with the fewest usable GPUs of a type among those with at least n, or -1.
func (r *rooms) least(typ, n int) int {
	for ; n < len(r.size[typ]); n++ {
		if r.size[typ][n] > 0 {
			return r.sets[typ][n].next(0)
		}
	}
	return -1
}

// most returns the largest number of usable GPUs of a type on one machine.
func (r *rooms) most(typ int) int {
	n := len(r.size[typ]) - 1
	for n > 0 && r.size[typ][n] == 0 {
		n--
	}
	return n
}

// place is [State.Place] with the index.
func (x *freeIndex) place(s *State, job, typ int, gpus []int) (chosen []int, speed float64, ok bool) {
	j := &s.Workload.Jobs[job]
	r := x.rooms(s, j)
	if r == nil {
		return s.Place(job, typ, gpus)
	}
	speed, machine := r.speed(s, j, typ)
	if speed == 0 {
		return gpus, 0, false
	}
	if machine >= 0 {
		return s.take(gpus, machine, typ, j.GPUs), speed, true
	}
	start := len(gpus)
	n := len(r.size[typ]) - 1
	for left := j.GPUs; left > 0; n-- {
		if r.size[typ][n] == 0 {
			continue
		}
		for m := r.sets[typ][n].next(0); m >= 0 && left > 0; m = r.sets[typ][n].next(m + 1) {
			gpus = s.take(gpus, m, typ, min(left, n))
			left -= min(left, n)
		}
	}
	slices.Sort(gpus[start:])
	return gpus, speed, true
}

// speed returns the speed of a job on the GPUs that [freeIndex.place] would choose, 0 if there are none, and the
// machine of these GPUs, -1 if there are several.
func (r *rooms) speed(s *State, j *Job, typ int) (speed float64, machine int) {
	if s.Workload.Kinds[j.Kind].GPUMemory > s.Cluster.Types[typ].Memory || r.total[typ] < j.GPUs {
		return 0, -1
	}
	machine = r.least(typ, j.GPUs)
	if speed = s.Speeds.Alone(j.Kind, typ, j.GPUs, machine < 0); !(speed > 0) {
		return 0, -1
	}
	return speed, machine
}

// speed returns the speed that place would return, or 0.
func (x *freeIndex) speed(s *State, job, typ int, buffer []int) float64 {
	j := &s.Workload.Jobs[job]
	if r := x.rooms(s, j); r != nil {
		speed, _ := r.speed(s, j, typ)
		return speed
	}
	_, speed, ok := s.Place(job, typ, buffer)
	if !ok {
		return 0
	}
	return speed
}
