package dqn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
)

// Encoding defines how the state of a cluster becomes an Observation, and how an action becomes a list of GPUs.
//
// # Rows and columns
//
// The GPUs of one type on one machine form a group of up to Slots GPUs; a machine with more of them, or with several
// types, has several groups. A group is a row of the image and a column of the actions. The GPUs of a group are equal,
// so an action names the group and not a GPU: for K jobs and 16 GPUs in 4 groups there are 4K actions instead of 16K.
// With Share, each group has a second column, in which the job shares the GPUs of a job that runs in the group.
//
// A network has Rows rows. With fewer groups, the other rows are empty. A cluster with more groups is a
// [*ClusterError]. Pairs contain speeds of jobs instead of names of types, so the same network works on clusters with
// other machines.
//
// # Gangs
//
// An action starts all GPUs of a job:
//
//   - the free GPUs of the group with the lowest indices, if the group has enough of them;
//   - otherwise, if no group of this type holds the whole gang, all usable GPUs of the group, and then GPUs of other
//     groups of the same type: groups of the same machine first, then groups with the most usable GPUs;
//   - with sharing, the GPUs of the running job with the largest gain: the sum of both speeds, each relative to its
//     speed alone. Jobs share only if the gain is above 1.
type Encoding struct {
	// Oldest and Shortest select the jobs that actions can start: the first Oldest jobs of the queue, and the Shortest
	// jobs with the least remaining time among the others.
	Oldest   int  `json:"oldest"`
	Shortest int  `json:"shortest"`
	Rows     int  `json:"rows"`
	Slots    int  `json:"slots"`
	Share    bool `json:"share"`
	// Unit is the time in seconds that features and rewards are relative to: the mean running time of a job.
	Unit float64 `json:"unit"`
	// Advice is the name of a policy of package scheduler; "" for none. The network then has one more action: the
	// action of this policy, even if no other action equals it (a gang on GPUs of several types). The network learns
	// when to deviate from this policy. The policy is also the baseline of imitation. The baseline keeps running jobs
	// where they are (scheduler.Options.Keep). Its action must depend only on the current state, which excludes maxmin.
	Advice string `json:"advice"`
	// Ingested adds the normalised facts of package features, and the mask of the known facts, to the facts.
	Ingested bool `json:"ingested"`
	// Similarity adds the scores of package hyper to the pairs: each run learns from its own placements which jobs run
	// well on which GPUs. The value is the number of dimensions of the vectors; 0: no scores.
	Similarity int `json:"similarity"`
}

// DefaultEncoding fits clusters of up to 5 groups: the default cluster has 4.
func DefaultEncoding() Encoding {
	return Encoding{Oldest: 2, Shortest: 4, Rows: 5, Slots: 4, Share: true, Unit: 600, Advice: "gang"}
}

func (e Encoding) check() error {
	if e.Oldest < 0 || e.Shortest < 0 || e.Oldest+e.Shortest < 1 || e.Rows < 1 || e.Slots < 1 || e.Similarity < 0 || !(e.Unit > 0) || math.IsInf(e.Unit, 1) || e.Oldest+e.Shortest > 1<<10 || e.Rows > 1<<8 || e.Slots > 1<<8 {
		return fmt.Errorf("encoding: got %+v, want 1 to 1024 jobs, 1 to 256 rows and slots, a unit above 0 s, and no negative number", e)
	}
	return nil
}

// Channels of the image.
const (
	imageUp    = iota // available
	imageBusy         // jobs on the GPU, relative to the largest number: the planned utilization
	imageUntil        // time until its jobs finish
	imageSpeed        // mean speed of all kinds of jobs on its type, relative to the best type
	imageChannels
)

// Facts before those of single jobs.
const (
	factQueue   = iota // length of the queue, x/(1+x) with x = queue/GPUs
	factRunning        // running jobs per GPU
	factFree           // fraction of GPUs without a job
	factWork           // GPU seconds of waiting jobs, x/(1+x) with x relative to Unit and GPUs
	factHidden         // fraction of the queue that no action can start
	factMean           // mean priority of the jobs that actions can start
	factClass          // fraction of each class among the jobs that actions can start
	factJobs    = factClass + scheduler.Classes
)

// Facts of each job: priority and one-hot class.
const jobFacts = 1 + scheduler.Classes

// Features of a pair.
const (
	pairPossible = iota
	pairTime     // running time on these GPUs
	pairBest     // running time on the best type
	pairSpeed    // speed relative to the best type
	pairMargin   // pairSpeed minus its mean over the other jobs: comparative advantage
	pairGPUs     // fraction of the cluster's GPUs
	pairCost     // GPU seconds
	pairWaited   // time since arrival
	pairPriority //
	pairShorter  // fraction of the shown jobs that are shorter
	pairUsable   // usable GPUs of the group relative to the gang, at most 1
	pairSoon     // time until the GPUs of the group are free, if they are not
	pairSpread   // the gang would span machines
	pairShare    // the column shares GPUs
	pairOwn      // own speed relative to the speed alone
	pairPartner  // speed of the partner relative to its speed alone
	pairEnds     // running time of the partner
	pairAdvised  // the action of the baseline
	pairScore    // similarity score of package hyper
	pairClass    // one-hot class
	pairNumbers  = pairClass + scheduler.Classes
)

// Shape returns the size of the observations.
func (e Encoding) Shape() Shape {
	jobs := e.Oldest + e.Shortest
	s := Shape{Channels: imageChannels, Machines: e.Rows, Slots: e.Slots, Facts: factJobs + jobs*jobFacts, Jobs: jobs, Columns: e.Rows, Pair: pairNumbers}
	if e.Share {
		s.Columns *= 2
	}
	if e.Advice != "" {
		s.Extra = 1
	}
	if x := e.extractor(); x != nil {
		s.Facts += 2 * x.Size()
	}
	return s
}

// extractor returns an extractor of the ingested facts, or nil if the network does not read them.
func (e Encoding) extractor() *features.Extractor {
	if !e.Ingested {
		return nil
	}
	x, err := features.New(features.Options{Jobs: e.Oldest + e.Shortest, GPUs: e.Rows * e.Slots})
	if err != nil {
		panic(err) // check has limited the numbers
	}
	return x
}

// group is a row of the image.
type group struct {
	typ, machine int
	gpus         []int
}

// encoder turns states of one run into observations. Only one goroutine at a time may use it.
type encoder struct {
	Encoding
	shape   Shape
	cluster *scheduler.Cluster
	work    *scheduler.Workload
	speeds  scheduler.Speeds
	groups  []group
	groupOf []int     // by GPU
	mean    []float64 // by type: mean relative speed of all kinds
	best    []float64 // by job: speed on the best type

	adviser  scheduler.Policy
	advice   scheduler.Action    // of the state that was observed last
	affinity *hyper.Affinity     // nil: no similarity scores
	ingested *features.Extractor // nil: none

	jobs     []int     // shown jobs, by slot
	usable   []int     // by group: GPUs that the current job can use
	free     []int     // by group: free GPUs
	soon     []float64 // by group: seconds until all its GPUs are free
	squashed []float32 // soon, as a feature of a pair
	partner  []int     // by (slot, group): index of the running job to share with, -1: none
	gpus     []int     // result of gpusOf
	ratios   []float64
}

func newEncoder(e Encoding) (*encoder, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	n := &encoder{Encoding: e, shape: e.Shape(), ingested: e.extractor()}
	n.usable, n.free = make([]int, e.Rows), make([]int, e.Rows)
	n.soon, n.squashed = make([]float64, e.Rows), make([]float32, e.Rows)
	n.partner, n.ratios = make([]int, n.shape.Jobs*e.Rows), make([]float64, n.shape.Jobs*e.Rows)
	if e.Advice == "maxmin" {
		return nil, errors.New("encoding: advice: got policy maxmin, whose decisions depend on earlier states: choose another baseline")
	}
	if e.Advice != "" {
		var err error
		if n.adviser, err = scheduler.New(e.Advice, scheduler.Options{Keep: true}); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// reset prepares for a run.
func (n *encoder) reset(c *scheduler.Cluster, w *scheduler.Workload, speeds scheduler.Speeds) error {
	if n.cluster != c {
		if err := n.layout(c); err != nil {
			return err
		}
	}
	n.work, n.speeds = w, speeds
	n.mean = append(n.mean[:0], make([]float64, len(c.Types))...)
	for kind := range w.Kinds {
		most := 0.0
		for t := range c.Types {
			most = max(most, speeds.Alone(kind, t, 1, false))
		}
		for t := range c.Types {
			if most > 0 {
				n.mean[t] += speeds.Alone(kind, t, 1, false) / most / float64(len(w.Kinds))
			}
		}
	}
	n.best = append(n.best[:0], make([]float64, len(w.Jobs))...)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		for t := range c.Types {
			if n.best[i] = max(n.best[i], speeds.Alone(j.Kind, t, j.GPUs, false)); n.best[i] == 0 {
				n.best[i] = speeds.Alone(j.Kind, t, j.GPUs, true)
			}
		}
		if !(n.best[i] > 0) {
			return fmt.Errorf("job %d (%q): %d GPUs of one type cannot run the job, and this network does not mix types", i, j.Name, j.GPUs)
		}
	}
	if n.Similarity > 0 { // forget earlier runs, so that a run depends only on its seed and its actions
		var err error
		if n.affinity, err = hyper.NewAffinity(hyper.Options{Dimension: n.Similarity}); err != nil {
			return err
		}
		n.affinity.Reset(c, w)
	}
	if n.ingested != nil {
		if err := n.ingested.Reset(c, w, speeds); err != nil {
			return err
		}
	}
	if n.adviser != nil {
		return n.adviser.Reset(c, w, speeds)
	}
	return nil
}

// ClusterError reports a cluster with more groups than the network has rows. Policy.Reset and NewEnvironments return it.
type ClusterError struct {
	Groups int // of the cluster
	Slots  int // GPUs of a group
	Rows   int // of the network
}

// Error implements error.
func (e *ClusterError) Error() string {
	return fmt.Sprintf("the cluster has %d groups of up to %d equal GPUs on one machine, but the network supports at most %d groups: "+
		"use another policy, or train a network with a larger Encoding.Rows in your own program", e.Groups, e.Slots, e.Rows)
}

// layout makes the groups of a cluster.
func (n *encoder) layout(c *scheduler.Cluster) error {
	n.groups, n.groupOf = n.groups[:0], make([]int, len(c.GPUs))
	for m := range c.Machines {
		for t := range c.Types {
			at := -1
			for _, g := range c.Machines[m].GPUs {
				if c.GPUs[g].Type != t {
					continue
				}
				if at < 0 || len(n.groups[at].gpus) == n.Slots {
					at = len(n.groups)
					n.groups = append(n.groups, group{typ: t, machine: m})
				}
				n.groups[at].gpus = append(n.groups[at].gpus, g)
				n.groupOf[g] = at
			}
		}
	}
	if len(n.groups) > n.Rows {
		return &ClusterError{Groups: len(n.groups), Slots: n.Slots, Rows: n.Rows}
	}
	n.cluster = c
	return nil
}

// squash maps times from 0 to numbers between 0 and 1; relative to the unit, 0.1 -> 0.24, 1 -> 0.5, 10 -> 0.76.
func (n *encoder) squash(seconds float64) float32 {
	root := math.Sqrt(max(0, seconds) / n.Unit)
	return float32(root / (1 + root))
}

func fraction(x float64) float32 { return float32(x / (1 + x)) }

// choose selects the shown jobs.
func (n *encoder) choose(s *scheduler.State) {
	n.jobs = append(n.jobs[:0], s.Queue[:min(len(s.Queue), n.Oldest)]...)
	rest := s.Queue[len(n.jobs):]
	from := len(n.jobs)
	for _, job := range rest { // insertion into the sorted shortest jobs; ties keep the order of arrival
		t := s.Remaining[job] / n.best[job]
		at := len(n.jobs)
		for at > from && t < s.Remaining[n.jobs[at-1]]/n.best[n.jobs[at-1]] {
			at--
		}
		if at >= from+n.Shortest {
			continue
		}
		if len(n.jobs) < from+n.Shortest {
			n.jobs = append(n.jobs, 0)
		}
		copy(n.jobs[at+1:], n.jobs[at:len(n.jobs)-1])
		n.jobs[at] = job
	}
}

// watch learns from a state without a decision. The caller must pass each event of a run to watch or observe.
func (n *encoder) watch(s *scheduler.State) {
	if n.affinity != nil {
		n.affinity.Watch(s)
	}
}

// observe writes the observation of a state.
func (n *encoder) observe(s *scheduler.State, o *Observation) {
	clear(o.State)
	clear(o.Mask)
	n.watch(s)
	n.choose(s)
	n.image(s, o.Image)
	n.facts(s, o.Facts)
	n.pairs(s, o)
	o.Mask[n.shape.Wait()] = canWait(s)
	if n.adviser != nil {
		n.advised(s, o)
	}
}

// advised asks the baseline for its action and writes the features of this action.
func (n *encoder) advised(s *scheduler.State, o *Observation) {
	gpus := n.advice.GPUs
	n.advice = n.adviser.Decide(s)
	n.advice.GPUs = append(gpus[:0], n.advice.GPUs...)
	if n.advice.Verb == scheduler.Wait {
		return
	}
	action := n.shape.rows() - 1
	o.Mask[action] = true
	p := o.Pairs[action*pairNumbers : (action+1)*pairNumbers]
	p[pairPossible], p[pairAdvised] = 1, 1
	a := &n.advice
	rate, _ := s.Fit(a.Job, a.GPUs)
	best := s.Remaining[a.Job] / n.best[a.Job]
	n.job(s, a.Job, p)
	p[pairOwn], p[pairPartner], p[pairUsable] = 1, 1, 1
	if n.cluster.Spread(a.GPUs) {
		p[pairSpread] = 1
	}
	if on := s.OnGPU[a.GPUs[0]]; len(on) > 0 {
		p[pairShare] = 1
		if alone := s.Rate(a.Job, a.GPUs, -1); alone > 0 {
			p[pairOwn] = float32(rate / alone)
		}
	}
	if rate > 0 {
		n.speed(s, a.Job, rate, p)
	}
	for _, job := range n.jobs {
		if s.Remaining[job]/n.best[job] < best {
			p[pairShorter] += 1 / float32(n.shape.Jobs)
		}
	}
	if n.affinity != nil {
		p[pairScore] = float32(n.affinity.Score(s, a.Job, a.GPUs[0]))
	}
}

// job writes the features of a pair that depend on the job only, except pairShorter.
func (n *encoder) job(s *scheduler.State, job int, p []float32) {
	j := &n.work.Jobs[job]
	p[pairBest] = n.squash(s.Remaining[job] / n.best[job])
	p[pairGPUs] = float32(float64(j.GPUs) / float64(len(n.cluster.GPUs)))
	p[pairWaited], p[pairPriority] = n.squash(s.Now-j.Arrival), float32(j.Priority)
	p[pairClass+int(n.work.Kinds[j.Kind].Class)] = 1
}

// speed writes the features of a pair that depend on the speed of the job on these GPUs.
func (n *encoder) speed(s *scheduler.State, job int, rate float64, p []float32) {
	t := s.Remaining[job] / rate
	p[pairTime], p[pairCost] = n.squash(t), n.squash(t*float64(n.work.Jobs[job].GPUs))
	p[pairSpeed] = float32(rate / n.best[job])
}

// canWait reports whether another event can occur.
func canWait(s *scheduler.State) bool {
	return len(s.Running) > 0 || s.Arrived < len(s.Workload.Jobs)
}

func (n *encoder) image(s *scheduler.State, image []float32) {
	plane := n.Rows * n.Slots
	clear(n.free)
	for i, g := range n.groups {
		n.soon[i] = 0
		for k, gpu := range g.gpus {
			at := i*n.Slots + k
			if !s.Up[gpu] {
				continue
			}
			image[imageUp*plane+at] = 1
			image[imageSpeed*plane+at] = float32(n.mean[g.typ])
			if len(s.OnGPU[gpu]) == 0 {
				n.free[i]++
			}
			image[imageBusy*plane+at] = float32(len(s.OnGPU[gpu])) / scheduler.MaxSharing
		}
	}
	for i := range s.Running {
		r := &s.Running[i]
		t := s.Left(r)
		for _, gpu := range r.GPUs {
			row := n.groupOf[gpu]
			n.soon[row] = max(n.soon[row], t)
			for k, other := range n.groups[row].gpus {
				if other == gpu {
					at := imageUntil*plane + row*n.Slots + k
					image[at] = max(image[at], n.squash(t))
				}
			}
		}
	}
}

func (n *encoder) facts(s *scheduler.State, facts []float32) {
	gpus, free := float64(len(n.cluster.GPUs)), 0
	for _, f := range n.free {
		free += f
	}
	waiting := 0.0
	for _, job := range s.Queue {
		waiting += s.Remaining[job] / n.best[job] * float64(n.work.Jobs[job].GPUs)
	}
	facts[factQueue] = fraction(float64(len(s.Queue)) / gpus)
	facts[factRunning] = float32(float64(len(s.Running)) / gpus)
	facts[factFree] = float32(float64(free) / gpus)
	facts[factWork] = fraction(waiting / gpus / n.Unit)
	if len(s.Queue) > 0 {
		facts[factHidden] = 1 - float32(len(n.jobs))/float32(len(s.Queue))
	}
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		class := n.work.Kinds[j.Kind].Class
		part := 1 / float32(len(n.jobs))
		facts[factMean] += float32(j.Priority) * part
		facts[factClass+int(class)] += part
		at := factJobs + slot*jobFacts
		facts[at], facts[at+1+int(class)] = float32(j.Priority), 1
	}
	if n.ingested != nil {
		at := factJobs + n.shape.Jobs*jobFacts
		half := at + (len(facts)-at)/2
		n.ingested.Fill(facts[at:half], facts[half:], s)
	}
}

// room sets the usable GPUs of each group for a job.
func (n *encoder) room(s *scheduler.State, j *scheduler.Job) {
	need := n.work.Kinds[j.Kind].GPUMemory
	for i, g := range n.groups {
		n.usable[i] = 0
		if n.free[i] > 0 && need <= n.cluster.Types[g.typ].Memory {
			n.usable[i] = min(n.free[i], scheduler.Multiples(s.FreeCPUs[g.machine], j.CPUs), scheduler.Multiples(s.FreeMem[g.machine], j.Memory))
		}
	}
}

// spreads reports whether a gang would start on group i together with other groups of its type: no single group of the
// type holds the gang, but all of them together do.
func (n *encoder) spreads(i, gpus int) bool {
	total := 0
	for k, g := range n.groups {
		if g.typ == n.groups[i].typ {
			if n.usable[k] >= gpus {
				return false
			}
			total += n.usable[k]
		}
	}
	return n.usable[i] > 0 && total >= gpus
}

func (n *encoder) pairs(s *scheduler.State, o *Observation) {
	rows := len(n.groups)
	n.relative()
	for i := range rows {
		n.squashed[i] = n.squash(n.soon[i])
	}
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		n.room(s, j)
		best, shorter := s.Remaining[job]/n.best[job], 0
		for _, other := range n.jobs {
			if s.Remaining[other]/n.best[other] < best {
				shorter++
			}
		}
		var same [pairNumbers]float32
		n.job(s, job, same[:])
		same[pairShorter] = float32(shorter) / float32(n.shape.Jobs)
		for i := range rows {
			spread := n.usable[i] < j.GPUs && n.spreads(i, j.GPUs)
			possible := n.usable[i] >= j.GPUs || spread
			speed := n.speeds.Alone(j.Kind, n.groups[i].typ, j.GPUs, spread)
			possible = possible && speed > 0
			if possible && spread { // groups of one machine share its CPU cores and memory
				gpus := n.gang(s, job, i)
				var why scheduler.Refusal
				speed, why = s.Fit(job, gpus)
				possible, spread = why == scheduler.Fits, n.cluster.Spread(gpus)
				n.room(s, j)
			}
			same[pairSoon] = n.squashed[i]
			same[pairUsable] = min(1, float32(n.usable[i])/float32(j.GPUs))
			if n.affinity != nil {
				same[pairScore] = float32(n.affinity.Score(s, job, n.groups[i].gpus[0]))
			}
			for share := range n.shape.Columns / n.Rows {
				action := slot*n.shape.Columns + share*n.Rows + i
				p := o.Pairs[action*pairNumbers : (action+1)*pairNumbers]
				copy(p, same[:])
				rate := speed
				if share == 0 {
					p[pairOwn], p[pairPartner] = 1, 1
					if spread {
						p[pairSpread] = 1
					}
				} else {
					p[pairShare] = 1
					rate = n.sharing(s, slot, i, p)
					possible = rate > 0
				}
				if rate > 0 {
					n.speed(s, job, rate, p)
					p[pairMargin] = p[pairSpeed] - float32(n.others(slot, i))
				}
				if possible {
					p[pairPossible] = 1
					o.Mask[action] = true
				}
			}
		}
	}
}

// relative computes the speed of each shown job in each group, relative to the best type.
func (n *encoder) relative() {
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		for i, g := range n.groups {
			n.ratios[slot*n.Rows+i] = n.speeds.Alone(j.Kind, g.typ, j.GPUs, false) / n.best[job]
		}
	}
}

// others is the mean relative speed of the other shown jobs in a group.
func (n *encoder) others(slot, i int) float64 {
	sum := 0.0
	for other := range n.jobs {
		if other != slot {
			sum += n.ratios[other*n.Rows+i]
		}
	}
	return sum / float64(max(1, len(n.jobs)-1))
}

// sharing chooses the running job of a group that a shown job would share GPUs with, and returns the speed that the
// shown job would have, or 0 if there is no such running job.
func (n *encoder) sharing(s *scheduler.State, slot, i int, p []float32) (rate float64) {
	at := slot*n.Rows + i
	n.partner[at] = -1
	job := n.jobs[slot]
	j := &n.work.Jobs[job]
	need, most := n.work.Kinds[j.Kind].GPUMemory, 1.0
	for k := range s.Running {
		r := &s.Running[k]
		g := n.groupOf[r.GPUs[0]]
		if r.Partner >= 0 || g != i || len(r.GPUs) != j.GPUs || len(s.OnGPU[r.GPUs[0]]) != 1 {
			continue
		}
		other := &n.work.Jobs[r.Job]
		if need+n.work.Kinds[other.Kind].GPUMemory > n.cluster.Types[n.groups[i].typ].Memory {
			continue
		}
		alone := n.speeds.Alone(j.Kind, n.groups[i].typ, j.GPUs, false)
		partner := n.speeds.Alone(other.Kind, n.groups[i].typ, j.GPUs, false)
		if !(alone > 0 && partner > 0) {
			continue
		}
		mine, ok := n.speeds.Shared(j.Kind, other.Kind, n.groups[i].typ, j.GPUs)
		theirs, fine := n.speeds.Shared(other.Kind, j.Kind, n.groups[i].typ, j.GPUs)
		if !ok || !fine {
			continue
		}
		gain := mine/alone + theirs/partner
		if !(gain > most) {
			continue
		}
		if speed, why := s.Fit(job, r.GPUs); why == scheduler.Fits {
			most, rate, n.partner[at] = gain, speed, k
			p[pairOwn], p[pairPartner], p[pairEnds] = float32(mine/alone), float32(theirs/partner), n.squash(s.Left(r))
		}
	}
	return rate
}

// start returns the action of package scheduler for an action of the network. The caller must have passed the same
// state to observe.
func (n *encoder) start(s *scheduler.State, action int) scheduler.Action {
	if action == n.shape.Wait() {
		return scheduler.Action{}
	}
	if action >= n.shape.Jobs*n.shape.Columns {
		a := n.advice
		a.Reason = ""
		return a
	}
	slot, column := action/n.shape.Columns, action%n.shape.Columns
	i, job := column%n.Rows, n.jobs[slot]
	a := scheduler.Action{Verb: scheduler.Start, Job: job}
	if column >= n.Rows {
		a.GPUs = append(n.gpus[:0], s.Running[n.partner[slot*n.Rows+i]].GPUs...)
	} else {
		a.GPUs = n.gang(s, job, i)
	}
	n.gpus = a.GPUs
	return a
}

// gang returns the GPUs of a job that starts on group i.
func (n *encoder) gang(s *scheduler.State, job, i int) []int {
	j := &n.work.Jobs[job]
	n.room(s, j)
	gpus, need := n.gpus[:0], j.GPUs
	for need > 0 && i >= 0 {
		take := min(need, n.usable[i])
		for _, gpu := range n.groups[i].gpus {
			if take > 0 && s.Up[gpu] && len(s.OnGPU[gpu]) == 0 {
				gpus = append(gpus, gpu)
				take, need = take-1, need-1
			}
		}
		n.usable[i] = 0
		next := -1
		for k, g := range n.groups {
			if g.typ != n.groups[i].typ || n.usable[k] == 0 {
				continue
			}
			near := g.machine == n.groups[i].machine
			nearest := next >= 0 && n.groups[next].machine == n.groups[i].machine
			if next < 0 || near && !nearest || near == nearest && n.usable[k] > n.usable[next] {
				next = k
			}
		}
		i = next
	}
	slices.Sort(gpus)
	return gpus
}

// advise returns the action of the baseline in the state that was observed last.
func (n *encoder) advise() int {
	if n.advice.Verb == scheduler.Wait {
		return n.shape.Wait()
	}
	return n.shape.rows() - 1
}
