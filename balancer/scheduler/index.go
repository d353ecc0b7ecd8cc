package scheduler

import "slices"

// freeIndex finds free GPUs of a state in a time that hardly depends on the number of GPUs. For the demands with the
// most jobs, it has data structures. For other demands, it searches the machines with free GPUs, those with the most
// first. The zero value is ready after reset. Call sync before any other method, whenever the state may have changed.
type freeIndex struct {
	reader
	cluster *Cluster
	shapes  *shapes
	types   int
	free    []int    // by type: free GPUs
	count   []int    // by machine and type: free GPUs
	is      []bitset // by type: whether a GPU is free
	most    []int    // by type: GPUs of the machine with the most of them

	moved changes  // machines on which free GPUs, CPU cores or memory have changed
	rooms []*rooms // by demand; nil: not used yet, or not among the demands with the most jobs
	any   *rooms   // of jobs that need neither CPU cores nor memory
	fewer [][]int  // by number of usable GPUs: machines; buffer of spread
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

func (x *freeIndex) reset(c *Cluster, v *shapes) {
	*x = freeIndex{cluster: c, shapes: v, types: len(c.Types), free: make([]int, len(c.Types)),
		count: make([]int, len(c.Machines)*len(c.Types)), is: make([]bitset, len(c.Types)),
		most: make([]int, len(c.Types)), moved: x.moved, rooms: make([]*rooms, len(v.demands))}
	x.moved.reset()
	for t := range x.is {
		x.is[t] = make(bitset, (len(c.GPUs)+63)/64)
	}
	have := make([]int, x.types)
	for m := range c.Machines {
		clear(have)
		for _, g := range c.Machines[m].GPUs {
			t := c.GPUs[g].Type
			have[t]++
			x.most[t] = max(x.most[t], have[t])
		}
	}
	x.any = x.add(demand{})
	for _, n := range x.most {
		x.fewer = append(x.fewer, make([][]int, max(0, n+1-len(x.fewer)))...)
	}
}

func (x *freeIndex) add(d demand) *rooms {
	r := &rooms{demand: d, at: -1, usable: make([]int, len(x.count)), total: make([]int, x.types),
		sets: make([][]bitset, x.types), size: make([][]int, x.types)}
	for t, n := range x.most {
		r.sets[t], r.size[t] = make([]bitset, n+1), make([]int, n+1)
	}
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

// of returns the data structure for the demand of a shape, or nil if the index has none.
func (x *freeIndex) of(s *State, shape int) *rooms {
	d := x.shapes.demand[shape]
	r := x.rooms[d]
	if r == nil {
		switch {
		case x.shapes.demands[d] == demand{}:
			r = x.any
		case !x.shapes.frequent[d]:
			return nil
		default:
			r = x.add(x.shapes.demands[d])
		}
		x.rooms[d] = r
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
		n := r.usableOf(s, m, x.count[at])
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

// usableOf returns how many of n free GPUs of a machine a job with a demand can use at the same time.
func (d *demand) usableOf(s *State, machine, n int) int {
	if n > 0 && !(d.cpus*float64(n) <= s.FreeCPUs[machine] && d.memory*float64(n) <= s.FreeMem[machine]) {
		return min(n, Multiples(s.FreeCPUs[machine], d.cpus), Multiples(s.FreeMem[machine], d.memory))
	}
	return n
}

// fits reports whether a machine has at least n usable GPUs of a type.
func (r *rooms) fits(typ, n int) bool {
	for ; n < len(r.size[typ]); n++ {
		if r.size[typ][n] > 0 {
			return true
		}
	}
	return false
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

// search finds n GPUs of a type for a demand without data structures. packed reports whether one machine has them, and
// ok whether all machines together have them. If apart is set, packed is false, and ok reports whether several machines
// have them. It reads machines with free GPUs until the answer is known.
func (x *freeIndex) search(s *State, d *demand, typ, n int, apart bool) (packed, ok bool) {
	x.update(s, x.any)
	total, most := 0, 0
	for free := len(x.any.size[typ]) - 1; free > 0; free-- {
		if x.any.size[typ][free] == 0 {
			continue
		}
		if free < n && total >= n && !apart {
			break
		}
		set := x.any.sets[typ][free]
		for m := set.next(0); m >= 0; m = set.next(m + 1) {
			usable := d.usableOf(s, m, free)
			if usable >= n && !apart {
				return true, true
			}
			total, most = total+usable, max(most, usable)
			if apart && total >= n && total > most {
				return false, true
			}
		}
	}
	return false, total >= n && !apart
}

// pick is [rooms.least] for a demand without data structures. Call search first.
func (x *freeIndex) pick(s *State, d *demand, typ, n int) int {
	best, fewest := -1, 0
	for free := n; free < len(x.any.size[typ]); free++ {
		if x.any.size[typ][free] == 0 {
			continue
		}
		set := x.any.sets[typ][free]
		for m := set.next(0); m >= 0 && !(fewest == n && m > best); m = set.next(m + 1) {
			usable := d.usableOf(s, m, free)
			if usable >= n && (best < 0 || usable < fewest || usable == fewest && m < best) {
				best, fewest = m, usable
			}
		}
	}
	return best
}

// place is [State.Place] with the index.
func (x *freeIndex) place(s *State, job, typ int, gpus []int) (chosen []int, speed float64, ok bool) {
	shape := x.shapes.of[job]
	n := x.shapes.classes[x.shapes.class[shape]].gpus
	if speed = x.speed(s, shape, typ); speed == 0 {
		return gpus, 0, false
	}
	r, machine := x.of(s, shape), -1
	switch packed, _ := x.shapes.speeds(x.shapes.class[shape], typ); {
	case packed == 0: // only over several machines
	case r != nil:
		machine = r.least(typ, n)
	default:
		machine = x.pick(s, &x.shapes.demands[x.shapes.demand[shape]], typ, n)
	}
	if machine >= 0 {
		return s.take(gpus, machine, typ, n), speed, true
	}
	if r == nil {
		r = x.any
	}
	start := len(gpus)
	gpus = x.spread(s, r, &x.shapes.demands[x.shapes.demand[shape]], typ, n, gpus)
	slices.Sort(gpus[start:])
	return gpus, speed, true
}

// spread appends n GPUs of a type, on several machines, for a demand. It takes machines with the most usable GPUs
// first; ties go to the lower machine. r states at least as many usable GPUs as each machine has for this demand. There
// must be enough.
func (x *freeIndex) spread(s *State, r *rooms, d *demand, typ, n int, gpus []int) []int {
	for i := range x.fewer {
		x.fewer[i] = x.fewer[i][:0]
	}
	for most, left := len(r.size[typ])-1, n; left > 0; most-- {
		set, fewer := r.sets[typ][most], x.fewer[most]
		slices.Sort(fewer)
		for next := set.next(0); left > 0 && (next >= 0 || len(fewer) > 0); {
			var m int
			if len(fewer) > 0 && (next < 0 || fewer[0] < next) {
				m, fewer = fewer[0], fewer[1:]
			} else {
				m, next = next, set.next(next+1)
				if usable := d.usableOf(s, m, most); usable < most {
					x.fewer[usable] = append(x.fewer[usable], m)
					continue
				}
			}
			take := min(left, most, n-1) // not all on one machine
			gpus = s.take(gpus, m, typ, take)
			left -= take
		}
	}
	return gpus
}

// speed returns the speed of the jobs of a shape on the GPUs that [freeIndex.place] would choose, or 0 if there are
// none.
func (x *freeIndex) speed(s *State, shape, typ int) float64 {
	class := x.shapes.class[shape]
	n := x.shapes.classes[class].gpus
	packed, spread := x.shapes.speeds(class, typ)
	if x.free[typ] < n || packed == 0 && spread == 0 {
		return 0
	}
	if r := x.of(s, shape); r != nil {
		switch {
		case r.total[typ] < n:
			return 0
		case packed == 0 && r.total[typ] == r.most(typ): // all on one machine
			return 0
		case packed > 0 && r.fits(typ, n):
			return packed
		}
		return spread
	}
	return x.searched(s, class, &x.shapes.demands[x.shapes.demand[shape]], typ)
}

// searched is speed for any demand of jobs of a class, without data structures.
func (x *freeIndex) searched(s *State, class int, d *demand, typ int) float64 {
	n := x.shapes.classes[class].gpus
	packed, spread := x.shapes.speeds(class, typ)
	if x.free[typ] < n || packed == 0 && spread == 0 {
		return 0
	}
	switch one, ok := x.search(s, d, typ, n, packed == 0); {
	case one:
		return packed
	case ok:
		return spread
	}
	return 0
}

// top returns a speed in steps/s that no job of a class exceeds on free GPUs of a type. It ignores CPU cores and
// memory.
func (x *freeIndex) top(s *State, class, typ int) float64 {
	n := x.shapes.classes[class].gpus
	packed, spread := x.shapes.speeds(class, typ)
	x.update(s, x.any)
	if x.any.fits(typ, n) {
		return max(packed, spread)
	}
	return spread
}
