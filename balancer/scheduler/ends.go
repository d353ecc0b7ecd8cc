package scheduler

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
)

// endIndex lists the running jobs of a state, and the GPUs that they use, in the order in which they end. The zero
// value is ready after reset. Call sync before any other method, whenever the state may have changed.
//
// The keys of the lists are the times at which a job was predicted to end when its speed changed. [State.Left] computes
// this time from the remaining steps at each moment, with other rounding errors. Readers therefore compute the exact
// times of the first items. They stop when a key, with the margin endPrecision, shows that no later item can end
// earlier.
type endIndex struct {
	read   reader
	freed  reader
	at     []int    // by job: index into State.Running, if there is no journal or the job has just changed
	end    []item   // by job: its item in jobs; id is -1 if it does not run
	pace   []pace   // by job
	group  []*group // by job: its group
	jobs   sorted
	gpus   []sorted // by type; nil unless listGPUs asks for it
	freeAt []item   // by GPU: its item in gpus; id is -1 if no job uses it

	kin    []int // by shape: the shape that stands for it in groups; nil: each shape has groups of its own
	groups map[groupKey]*group
	bySize [][]*group // by index into shapes.sizes: groups with jobs
}

// pace contains the values of a running job from which [State.Left] predicts its end.
type pace struct{ speed, rate, ready, leaves float64 }

// endPrecision bounds the difference between the key of an item and the exact time, relative to the time and to now.
// The true difference is a few rounding errors.
const endPrecision = 1e-11

// margin returns the bound of the difference for a key.
func margin(key, now float64) float64 { return endPrecision * (math.Abs(key) + math.Abs(now)) }

// groupKey determines the speed of a running job on its GPUs, on other GPUs, and with a partner.
type groupKey struct {
	shape   int
	typ     int // of its GPUs; -1: several types
	spread  bool
	partner int // shape of its partner; -1: none
	speed   float64
	rate    float64 // steps/s, without the limits of the network
}

// group is a set of running jobs that differ only in their remaining steps. They are listed in the order of their ends,
// and thus of their remaining steps.
type group struct {
	groupKey
	jobs    sorted
	size    int       // index into endIndex.bySize
	place   int       // index into endIndex.bySize[size]; only valid while the group has jobs
	pairing []pairing // by kind: with a job of this kind on the same GPUs; nil if no such pair is known
	targets []target  // types on which the jobs may be faster
	known   bool      // targets is valid
}

// target is a type of GPU with the speed in steps/s that no job exceeds there.
type target struct {
	typ   int
	speed float64
}

// pairing describes a job of a kind together with a job of a group.
type pairing struct {
	known, ok          bool
	rises              bool    // policy gang: the gain is larger if the other job has more remaining steps
	mine, alone, other float64 // steps/s
}

func (x *endIndex) reset(c *Cluster, w *Workload, v *shapes) {
	x.read, x.freed = reader{}, reader{}
	x.at, x.end, x.group = make([]int, len(w.Jobs)), make([]item, len(w.Jobs)), make([]*group, len(w.Jobs))
	x.pace = make([]pace, len(w.Jobs))
	x.gpus, x.freeAt = nil, nil
	x.bySize = make([][]*group, len(v.sizes))
	x.empty()
}

// listGPUs makes the index list GPUs. Call reset first.
func (x *endIndex) listGPUs(c *Cluster) {
	x.gpus, x.freeAt = make([]sorted, len(c.Types)), make([]item, len(c.GPUs))
	for g := range x.freeAt {
		x.freeAt[g].id = -1
	}
}

func (x *endIndex) empty() {
	for i := range x.end {
		x.end[i].id, x.group[i], x.at[i] = -1, nil, -1
	}
	for i := range x.freeAt {
		x.freeAt[i].id = -1
	}
	x.jobs.clear()
	for t := range x.gpus {
		x.gpus[t].clear()
	}
	x.groups = map[groupKey]*group{}
	for i := range x.bySize {
		x.bySize[i] = x.bySize[i][:0]
	}
}

// find returns the index of a job in State.Running, or -1.
func (x *endIndex) find(s *State, job int) int {
	if s.Journal == nil {
		return x.at[job]
	}
	return s.Journal.Find(s.Running, job)
}

// sync updates the index to a state.
func (x *endIndex) sync(s *State, v *shapes) {
	jobs, ok := x.read.jobs(s)
	var gpus []int
	if same := true; x.gpus != nil {
		gpus, same = x.freed.gpus(s)
		ok = ok && same
	}
	if !ok {
		x.empty()
		for i := range s.Running {
			x.at[s.Running[i].Job] = i
		}
		for i := range s.Running {
			x.add(s, v, i)
		}
		for i := range s.Running {
			x.useAll(s, i)
		}
		return
	}
	for _, job := range jobs {
		if x.end[job].id >= 0 {
			x.jobs.remove(x.end[job])
			x.leave(job)
			x.end[job].id = -1
		}
		if x.at[job] = x.find(s, job); x.at[job] >= 0 {
			x.add(s, v, x.at[job])
		}
	}
	for _, job := range jobs {
		if x.at[job] >= 0 {
			x.useAll(s, x.at[job])
		}
	}
	for _, g := range gpus {
		x.use(s, g)
	}
}

// useAll updates the items of the GPUs of a running job.
func (x *endIndex) useAll(s *State, i int) {
	if x.gpus != nil {
		for _, g := range s.Running[i].GPUs {
			x.use(s, g)
		}
	}
}

// add adds a running job.
func (x *endIndex) add(s *State, v *shapes, i int) {
	r := &s.Running[i]
	x.end[r.Job] = item{key(s.Now + s.Left(r)), r.Job}
	x.jobs.insert(x.end[r.Job])
	x.pace[r.Job] = pace{r.Speed, 0, r.Ready, r.Leaves}
	if !(r.Speed > 0) && math.IsInf(r.Leaves, 1) {
		x.pace[r.Job].rate = s.Rate(r.Job, r.GPUs, r.Partner)
	}
	if !(r.Speed > 0) || !math.IsInf(r.Leaves, 1) {
		return
	}
	k := groupKey{shape: x.kinOf(v, r.Job), typ: -1, spread: s.Cluster.Spread(r.GPUs), partner: -1, speed: r.Speed,
		rate: s.Rate(r.Job, r.GPUs, r.Partner)}
	if s.Cluster.Uniform(r.GPUs) {
		k.typ = s.Cluster.GPUs[r.GPUs[0]].Type
	}
	if r.Partner >= 0 {
		k.partner = x.kinOf(v, r.Partner)
	}
	g := x.groups[k]
	if g == nil {
		g = &group{groupKey: k, size: v.classes[v.classOf(r.Job)].size}
		x.groups[k] = g
	}
	if g.jobs.n == 0 {
		g.place = len(x.bySize[g.size])
		x.bySize[g.size] = append(x.bySize[g.size], g)
	}
	g.jobs.insert(x.end[r.Job])
	x.group[r.Job] = g
}

// kinOf returns the shape that replaces the shape of a job in group keys.
func (x *endIndex) kinOf(v *shapes, job int) int {
	if x.kin == nil {
		return v.of[job]
	}
	return x.kin[v.of[job]]
}

// leave removes a job from its group. Groups without jobs remain, because later jobs may use their values.
func (x *endIndex) leave(job int) {
	g := x.group[job]
	if g == nil {
		return
	}
	g.jobs.remove(x.end[job])
	x.group[job] = nil
	if g.jobs.n > 0 {
		return
	}
	list := x.bySize[g.size]
	last := list[len(list)-1]
	list[g.place], last.place = last, g.place
	x.bySize[g.size] = list[:len(list)-1]
	if len(x.groups) <= limits.Groups {
		return
	}
	for k, g := range x.groups {
		if g.jobs.n == 0 {
			delete(x.groups, k)
		}
	}
}

// key returns a time as a key. NaN is not valid as a key.
func key(at float64) float64 {
	if math.IsNaN(at) {
		return math.Inf(1)
	}
	return at
}

// use updates the item of a GPU.
func (x *endIndex) use(s *State, g int) {
	list, old := &x.gpus[s.Cluster.GPUs[g].Type], x.freeAt[g]
	now := item{0, -1}
	if len(s.OnGPU[g]) > 0 {
		at := math.Inf(1)
		for _, job := range s.OnGPU[g] {
			if end := x.end[job].key; math.IsInf(at, 1) || end > at {
				at = end
			}
		}
		now = item{at, g}
	}
	if now == old {
		return
	}
	if old.id >= 0 {
		list.remove(old)
	}
	if now.id >= 0 {
		list.insert(now)
	}
	x.freeAt[g] = now
}

// until returns the exact time at which a GPU becomes free that a job uses.
func (x *endIndex) until(s *State, g int) float64 {
	at := math.Inf(1)
	for _, job := range s.OnGPU[g] {
		if end := s.Now + x.left(s, job); math.IsInf(at, 1) || end > at {
			at = end
		}
	}
	return at
}

// left is [State.Left] of a running job.
func (x *endIndex) left(s *State, job int) float64 {
	v := &x.pace[job]
	if !math.IsInf(v.leaves, 1) {
		return max(0, v.leaves-s.Now)
	}
	steps := 0.0
	switch {
	case s.StepsOf != nil:
		steps = s.StepsOf(job)
	case s.Journal != nil:
		steps = s.Remaining[job]
	default:
		steps = s.Running[x.at[job]].Remaining
	}
	if v.speed > 0 {
		return steps / v.speed
	}
	return max(0, v.ready-s.Now) + steps/v.rate
}

// ending is the predicted end of a running job.
type ending struct {
	running int     // index into State.Running
	left    float64 // seconds from now
}

// upcoming returns the running jobs one after the other, in the order in which they end. Jobs that end at the same time
// are in the order of their start. It leaves out jobs that never end.
type upcoming struct {
	s     *State
	x     *endIndex
	at    cursor
	batch []ending
	i     int
}

func (u *upcoming) reset(s *State, x *endIndex) {
	u.s, u.x, u.at, u.batch, u.i = s, x, x.jobs.first(), u.batch[:0], 0
}

// peek returns the next job.
func (u *upcoming) peek() (e ending, ok bool) {
	for u.i == len(u.batch) {
		if !u.fetch() {
			return ending{}, false
		}
	}
	return u.batch[u.i], true
}

// fetch reads the next items, as many as their keys cannot order.
func (u *upcoming) fetch() bool {
	u.batch, u.i = u.batch[:0], 0
	latest := math.Inf(-1)
	for some := false; ; some = true {
		e, ok := u.at.get()
		if !ok {
			if !some {
				return false
			}
			break
		}
		if some && e.key-margin(e.key, u.s.Now) > latest {
			break
		}
		if left := u.x.left(u.s, e.id); !math.IsInf(left, 1) {
			u.batch = append(u.batch, ending{u.x.find(u.s, e.id), left})
		}
		latest = max(latest, e.key+margin(e.key, u.s.Now))
		u.at.next()
	}
	slices.SortFunc(u.batch, func(a, b ending) int {
		switch {
		case a.left < b.left:
			return -1
		case a.left > b.left:
			return 1
		}
		return a.running - b.running
	})
	return true
}
