package hyper

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Options configure an [Affinity]. Zero fields select the defaults.
type Options struct {
	Dimension int    // default Dimension
	Seed      uint64 // seed of all random vectors

	// Well is the least efficiency of a placement that counts as good, between 0 and 1. Default 0.75. With a larger
	// value, only the best GPUs for a kind of job get positive scores.
	Well float64
	// Window is the number of placements that the memory keeps. Default 256. With a smaller window, the memory forgets
	// faster. With a larger window, each placement has less weight: the similarity to one placement is about sqrt(2 /
	// (pi Window)).
	Window int
	// Refresh is the number of placements between two updates of the scores. Default 16. A larger value costs less
	// time. Until the memory contains this number of placements, every placement updates the scores.
	Refresh int
}

func (o Options) filled() (Options, error) {
	if o.Dimension == 0 {
		o.Dimension = Dimension
	}
	if o.Well == 0 {
		o.Well = 0.75
	}
	if o.Window == 0 {
		o.Window = 256
	}
	if o.Refresh == 0 {
		o.Refresh = 16
	}
	switch {
	case !(o.Well > 0 && o.Well <= 1):
		return o, fmt.Errorf("least efficiency of a good placement: got %v, want a number above 0 and at most 1",
			o.Well)
	case o.Window < 1 || o.Window > 1<<20:
		return o, fmt.Errorf("number of placements in a memory: got %d, want 1 to %d", o.Window, 1<<20)
	case o.Refresh < 1:
		return o, fmt.Errorf("number of placements between score updates: got %d, want at least 1", o.Refresh)
	}
	return o, nil
}

// Placement states how well one job ran on one kind of GPU.
type Placement struct {
	Job        JobFacts
	GPU        GPUFacts // utilization before the job started
	Efficiency float64  // see the package comment; above 1 is possible, for example with a mixed gang
}

// Affinity learns which jobs run well on which GPUs. See the package comment for the definition of its scores. It is
// not safe for concurrent use.
type Affinity struct {
	options Options
	space   *Space
	encoder *Encoder
	memory  experience
	since   int // placements since the last update of the scores
	version int // of the scores

	// All jobs with equal facts share one record, even from different runs. The same applies to GPUs.
	jobRecords records[jobKey]
	gpuRecords records[gpuKey]
	gpuFacts   []GPUFacts // by record: the first facts with this record

	// The current run.
	cluster  *scheduler.Cluster
	workload *scheduler.Workload
	jobs     []int // record, by job; -1: no record yet
	gpus     []int // record, by GPU and number of jobs on it; -1: no record yet
	slots    []slot
	slotOf   []int // by job; -1: it does not run
	free     []int // slots
	active   []int // jobs with slots
	epoch    int   // calls of Watch

	scores [][]cached // by record of the job, then of the GPU
	query  Vector
}

// slot is a running job.
type slot struct {
	since           float64 // Running.Since; identifies the stay on these GPUs
	seen, remaining float64 // time in seconds, and remaining steps, when Watch saw the stay first
	gpus            []int   // records of its GPUs, each once
	epoch           int     // the last call of Watch in which the job ran
}

// records numbers keys, and stores a vector for each key.
type records[K comparable] struct {
	ids     map[K]int
	vectors []Vector
}

func newRecords[K comparable]() records[K] { return records[K]{ids: map[K]int{}} }

// id returns the number of a key. It calls vector only for a new key.
func (r *records[K]) id(key K, vector func() Vector) (id int, added bool) {
	id, known := r.ids[key]
	if !known {
		id = len(r.vectors)
		r.ids[key] = id
		r.vectors = append(r.vectors, vector())
	}
	return id, !known
}

type cached struct {
	version int
	score   float64
}

// experience is the bundle of the last placements.
type experience struct {
	bundle   *Bundle
	majority Vector
	ring     []Vector
	facts    []Placement
	next     int // place of the next placement in ring and facts
}

func (e *experience) add(v Vector, p *Placement) {
	if len(e.facts) == len(e.ring) {
		e.bundle.Remove(e.ring[e.next])
		e.facts[e.next] = *p
	} else {
		e.facts = append(e.facts, *p)
	}
	if e.ring[e.next] == nil {
		e.ring[e.next] = make(Vector, len(v))
	}
	copy(e.ring[e.next], v)
	e.bundle.Add(v)
	e.next = (e.next + 1) % len(e.ring)
}

// NewAffinity returns an affinity without experience.
func NewAffinity(o Options) (*Affinity, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	space, err := NewSpace(o.Dimension, o.Seed)
	if err != nil {
		return nil, err
	}
	encoder, err := space.NewEncoder()
	if err != nil {
		return nil, err
	}
	memory := experience{bundle: space.NewBundle(), majority: space.New(), ring: make([]Vector, o.Window)}
	return &Affinity{
		options: o, space: space, encoder: encoder, memory: memory, version: 1,
		jobRecords: newRecords[jobKey](), gpuRecords: newRecords[gpuKey](), query: space.New(),
	}, nil
}

// Reset prepares for a run on a cluster. It keeps the experience.
func (a *Affinity) Reset(c *scheduler.Cluster, w *scheduler.Workload) {
	a.cluster, a.workload = c, w
	a.jobs = refill(a.jobs, len(w.Jobs))
	a.slotOf = refill(a.slotOf, len(w.Jobs))
	a.gpus = refill(a.gpus, len(c.GPUs)*(scheduler.MaxSharing+1))
	a.active, a.free = a.active[:0], a.free[:0]
	for i := range a.slots {
		a.free = append(a.free, i)
	}
}

// refill returns a list of n elements with value -1.
func refill(list []int, n int) []int {
	list = slices.Grow(list[:0], n)[:n]
	for i := range list {
		list[i] = -1
	}
	return list
}

// jobRecord returns the number of the record of a job.
func (a *Affinity) jobRecord(job int) int {
	id := &a.jobs[job]
	if *id < 0 {
		f := FactsOfJob(a.workload, job)
		*id = a.jobID(&f)
	}
	return *id
}

func (a *Affinity) jobID(f *JobFacts) int {
	key := a.encoder.jobKey(f)
	id, added := a.jobRecords.id(key, func() Vector {
		v := a.space.New()
		a.encoder.encodeJob(v, key)
		return v
	})
	if added {
		a.scores = append(a.scores, nil)
	}
	return id
}

// gpuRecord returns the number of the record of a GPU with n jobs on it.
func (a *Affinity) gpuRecord(gpu, n int) int {
	id := &a.gpus[gpu*(scheduler.MaxSharing+1)+min(n, scheduler.MaxSharing)]
	if *id < 0 {
		f := FactsOfGPU(a.cluster, gpu, n)
		*id = a.gpuID(&f)
	}
	return *id
}

func (a *Affinity) gpuID(f *GPUFacts) int {
	key := a.encoder.gpuKey(f)
	id, added := a.gpuRecords.id(key, func() Vector {
		v := a.space.New()
		a.encoder.encodePlace(v, key)
		return v
	})
	if added {
		a.gpuFacts = append(a.gpuFacts, *f)
	}
	return id
}

// Watch learns from the next state of a run. It learns a placement when a job that ran in an earlier state has left its
// GPUs. The states must be of the cluster and the workload of Reset, in chronological order. Call Watch at each event.
// A job counts as running until the first state in which it does not run, so a missing state makes its efficiency too
// small.
func (a *Affinity) Watch(s *scheduler.State) {
	a.epoch++
	for i := range s.Running {
		r := &s.Running[i]
		if at := a.slotOf[r.Job]; at >= 0 && a.slots[at].since == r.Since {
			a.slots[at].epoch = a.epoch
		}
	}
	kept := a.active[:0]
	for _, job := range a.active { // learn from jobs that finished or started again
		at := a.slotOf[job]
		if a.slots[at].epoch == a.epoch {
			kept = append(kept, job)
			continue
		}
		a.learn(s, job, &a.slots[at])
		a.slotOf[job] = -1
		a.free = append(a.free, at)
	}
	a.active = kept
	for i := range s.Running {
		if r := &s.Running[i]; a.slotOf[r.Job] < 0 {
			a.begin(s, r)
		}
	}
}

func (a *Affinity) begin(s *scheduler.State, r *scheduler.Running) {
	if len(a.free) == 0 {
		a.free = append(a.free, len(a.slots))
		a.slots = append(a.slots, slot{})
	}
	at := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	slot := &a.slots[at]
	slot.since, slot.seen, slot.remaining, slot.gpus, slot.epoch = r.Since, s.Now, r.Remaining, slot.gpus[:0], a.epoch
	for _, gpu := range r.GPUs {
		if id := a.gpuRecord(gpu, len(s.OnGPU[gpu])-1); !slices.Contains(slot.gpus, id) {
			slot.gpus = append(slot.gpus, id)
		}
	}
	a.slotOf[r.Job] = at
	a.active = append(a.active, r.Job)
}

// learn adds the placement of a job that left its GPUs.
func (a *Affinity) learn(s *scheduler.State, job int, slot *slot) {
	j := &a.workload.Jobs[job]
	best := 0.0
	for t := range a.cluster.Types {
		speed := s.Speeds.Alone(j.Kind, t, j.GPUs, false)
		if !(speed > 0) && j.GPUs > 1 { // it runs only over several machines
			speed = s.Speeds.Alone(j.Kind, t, j.GPUs, true)
		}
		best = max(best, speed)
	}
	seconds := s.Now - slot.seen
	if !(best > 0) || !(seconds > 0) {
		return
	}
	efficiency := max(slot.remaining-s.Remaining[job], 0) / seconds / best
	record := a.jobRecord(job)
	p := Placement{Job: FactsOfJob(a.workload, job), Efficiency: efficiency}
	for _, id := range slot.gpus {
		p.GPU = a.gpuFacts[id]
		a.add(record, id, &p)
	}
}

func (a *Affinity) add(job, gpu int, p *Placement) {
	a.space.Bind(a.query, a.jobRecords.vectors[job], a.gpuRecords.vectors[gpu])
	if p.Efficiency < a.options.Well {
		a.space.Negate(a.query, a.query)
	}
	a.memory.add(a.query, p)
	if a.since++; a.since >= a.options.Refresh || len(a.memory.facts) < a.options.Refresh {
		a.refresh()
	}
}

func (a *Affinity) refresh() {
	a.since = 0
	a.version++
	a.memory.bundle.Majority(a.memory.majority)
}

// Placements returns the experience, the oldest placement first.
func (a *Affinity) Placements() []Placement {
	e := &a.memory
	start := 0
	if len(e.facts) == len(e.ring) {
		start = e.next
	}
	return append(append([]Placement(nil), e.facts[start:]...), e.facts[:start]...)
}

// Score returns the affinity of a job for a GPU in the current state of the GPU, between -1 and 1. Without experience,
// the score is 0.
func (a *Affinity) Score(s *scheduler.State, job, gpu int) float64 {
	return a.score(a.jobRecord(job), a.gpuRecord(gpu, len(s.OnGPU[gpu])))
}

func (a *Affinity) score(job, gpu int) float64 {
	row := a.scores[job]
	if gpu >= len(row) {
		row = append(row, make([]cached, len(a.gpuRecords.vectors)-len(row))...)
		a.scores[job] = row
	}
	c := &row[gpu]
	if c.version != a.version {
		a.space.Bind(a.query, a.jobRecords.vectors[job], a.gpuRecords.vectors[gpu])
		c.version, c.score = a.version, 0
		if len(a.memory.facts) > 0 {
			c.score = a.space.Similarity(a.query, a.memory.majority)
		}
	}
	return c.score
}
