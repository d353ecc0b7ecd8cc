package jobqueue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Table contains the speeds of the kinds of jobs on the types of GPUs, and the names of both.
type Table interface {
	scheduler.Speeds
	Kind(name string) (index int, ok bool)
	Type(name string) (index int, ok bool)
}

// unlimited is the assumed run time of a job without known work and without a time limit: one year, in seconds.
const unlimited = 365 * 24 * 3600

// Propose returns a placement for each pending job, in the order in which the policy places them. Jobs that must wait,
// or that the package cannot place, follow in the order of the snapshot, without nodes. The parameter table may be nil.
//
// A policy may have a method Unable(job int) string. It returns the reason why the policy never starts a job, or "".
// Propose puts this reason into the placement of the job.
//
// The policy sees the jobs in the order of the queue system: by urgency, then by submission. It also sees running jobs
// with the GPUs that they use. It must not stop jobs; Propose returns an error if it does.
func Propose(s *Snapshot, policy scheduler.Policy, table Table) ([]Placement, error) {
	b := newBoard(s, table)
	if err := policy.Reset(&b.cluster, &b.workload, b); err != nil {
		return nil, fmt.Errorf("policy %s: %w", policy.Name(), err)
	}
	var out []Placement
	refused := unable(policy, b.state.Queue)
	for {
		a := policy.Decide(&b.state)
		switch a.Verb {
		case scheduler.Stop:
			return nil, fmt.Errorf("policy %s stops job %s, want a policy that only starts jobs", policy.Name(),
				b.name(a.Job))
		case scheduler.Start:
			if why := b.start(a); why != "" {
				refused[a.Job] = why
				continue
			}
			out = append(out, b.placement(a))
			continue
		}
		return append(out, b.waiting(refused)...), nil
	}
}

// unable returns the jobs in a queue that a policy never starts, with the reasons.
func unable(policy scheduler.Policy, queue []int) map[int]string {
	reasons := map[int]string{}
	for policy != nil {
		if p, ok := policy.(interface{ Unable(job int) string }); ok {
			for _, job := range queue {
				if why := p.Unable(job); why != "" {
					reasons[job] = why
				}
			}
			break
		}
		outer, ok := policy.(interface{ Unwrap() scheduler.Policy })
		if !ok {
			break
		}
		policy = outer.Unwrap()
	}
	return reasons
}

// board is a snapshot converted to the types of package scheduler. GPUs of the same model have different types if a job
// may use only some of them. Each job has a kind of its own. A speed of 0 therefore represents any constraint of a job.
type board struct {
	snapshot *Snapshot
	table    Table
	wanted   map[string]bool // labels that some job requires; other labels are ignored
	cluster  scheduler.Cluster
	workload scheduler.Workload
	state    scheduler.State
	classes  []class   // classes of GPUs, by type in package scheduler
	left     []float64 // amount left, by budget
	// index into Snapshot.Jobs, by job of the workload; -1: an unnamed job that uses the GPUs of no known job
	jobs  []int
	kinds []int // kind in the table, by job of the workload; -1: unknown
}

// class is a set of GPUs that are equal for all jobs.
type class struct {
	model  string
	labels string // those labels of the node that some job requires
	repels string
	node   int // one of the nodes of the class
	typ    int // type in the table; -1: unknown
}

func newBoard(s *Snapshot, table Table) *board {
	b := &board{snapshot: s, table: table}
	b.wanted = map[string]bool{}
	for i := range s.Jobs {
		for _, label := range s.Jobs[i].Requires {
			b.wanted[label] = true
		}
	}
	for _, budget := range s.Budgets {
		b.left = append(b.left, budget.Left)
	}
	b.state = scheduler.State{Cluster: &b.cluster, Workload: &b.workload, Speeds: b}
	for i := range s.Nodes {
		b.addNode(i)
	}
	b.addActive()
	b.addPending()
	b.state.Arrived = len(b.workload.Jobs)
	return b
}

func (b *board) addNode(i int) {
	n := &b.snapshot.Nodes[i]
	m := scheduler.Machine{Name: n.Name, CPUs: n.CPUs, Memory: n.Memory, Network: math.NaN()}
	var labels []string
	for _, label := range n.Labels {
		if b.wanted[label] {
			labels = append(labels, label)
		}
	}
	for _, g := range n.GPUs {
		c := class{model: g.Type, labels: strings.Join(labels, "\n"), repels: strings.Join(n.Repels, "\n"), node: i,
			typ: -1}
		if b.table != nil {
			if t, ok := b.table.Type(g.Type); ok {
				c.typ = t
			}
		}
		t := slices.IndexFunc(b.classes, func(o class) bool {
			return o.model == c.model && o.labels == c.labels && o.repels == c.repels
		})
		if t < 0 {
			t = len(b.classes)
			b.classes = append(b.classes, c)
			b.cluster.Types = append(b.cluster.Types,
				scheduler.GPUType{Name: g.Type, Memory: math.Inf(1), Bandwidth: math.NaN(), Compute: math.NaN()})
		}
		for k := range g.Total {
			m.GPUs = append(m.GPUs, len(b.cluster.GPUs))
			b.cluster.GPUs = append(b.cluster.GPUs, scheduler.GPU{Name: fmt.Sprintf("%s/%s%d", n.Name, g.Type, k),
				Type: t, Machine: i,
				Utilization: math.NaN(), Temperature: math.NaN()})
			b.state.Up = append(b.state.Up, n.Down == "")
			b.state.OnGPU = append(b.state.OnGPU, nil)
		}
	}
	b.cluster.Machines = append(b.cluster.Machines, m)
	b.state.FreeCPUs = append(b.state.FreeCPUs, max(0, n.CPUs-n.UsedCPUs))
	b.state.FreeMem = append(b.state.FreeMem, max(0, n.Memory-n.UsedMemory))
}

// addActive assigns GPUs to running jobs. An unnamed job gets the GPUs that are in use but belong to no known job.
func (b *board) addActive() {
	for i := range b.snapshot.Jobs {
		j := &b.snapshot.Jobs[i]
		if j.Phase != Active || len(j.Holds) != len(j.On) {
			continue
		}
		var gpus []int
		for k, node := range j.On {
			machine := slices.IndexFunc(b.snapshot.Nodes, func(n Node) bool { return n.Name == node })
			for _, held := range j.Holds[k] {
				gpus = b.free(gpus, machine, held.Type, held.Total)
			}
		}
		b.hold(i, j, gpus)
	}
	for m := range b.snapshot.Nodes {
		for _, g := range b.snapshot.Nodes[m].GPUs {
			busy := 0
			for _, id := range b.cluster.Machines[m].GPUs {
				if b.cluster.Types[b.cluster.GPUs[id].Type].Name == g.Type && len(b.state.OnGPU[id]) > 0 {
					busy++
				}
			}
			b.hold(-1, &Job{Limit: math.Inf(1)}, b.free(nil, m, g.Type, g.Used-busy))
		}
	}
}

// free appends up to n free GPUs of a model on a machine.
func (b *board) free(gpus []int, machine int, model string, n int) []int {
	if machine < 0 {
		return gpus
	}
	for _, id := range b.cluster.Machines[machine].GPUs {
		matches := model == "" || b.cluster.Types[b.cluster.GPUs[id].Type].Name == model
		if n > 0 && matches && len(b.state.OnGPU[id]) == 0 && !slices.Contains(gpus, id) {
			gpus = append(gpus, id)
			n--
		}
	}
	return gpus
}

func (b *board) hold(i int, j *Job, gpus []int) {
	if len(gpus) == 0 {
		return
	}
	slices.Sort(gpus)
	job := b.addJob(i, j, len(gpus))
	work := b.workload.Jobs[job].Work
	speed := b.state.Rate(job, gpus, -1)
	remaining := work
	if j.Started > 0 {
		remaining = max(0, work-speed*max(0, b.snapshot.Now-j.Started))
	}
	b.state.Remaining[job] = remaining
	b.state.Running = append(b.state.Running,
		scheduler.Running{Job: job, GPUs: gpus, Since: min(0, j.Started-b.snapshot.Now), Speed: speed,
			Remaining: remaining, Leaves: math.Inf(1), Partner: -1})
	for _, g := range gpus {
		b.state.OnGPU[g] = append(b.state.OnGPU[g], job)
	}
}

// addPending adds the pending jobs in the order of the queue system.
func (b *board) addPending() {
	var order []int
	for i := range b.snapshot.Jobs {
		if j := &b.snapshot.Jobs[i]; j.Phase == Pending && j.Skip == "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		a, c := &b.snapshot.Jobs[x], &b.snapshot.Jobs[y]
		return cmp.Or(cmp.Compare(c.Urgency, a.Urgency), cmp.Compare(a.Submitted, c.Submitted))
	})
	for rank, i := range order {
		j := &b.snapshot.Jobs[i]
		job := b.addJob(i, j, j.GPUs)
		w := &b.workload.Jobs[job]
		w.Priority = 1 - float64(rank)/float64(len(order))
		b.state.Queue = append(b.state.Queue, job)
	}
}

// addJob adds a job with a kind of its own. Times are relative to the time of the snapshot.
func (b *board) addJob(i int, j *Job, gpus int) int {
	job, kind := len(b.workload.Jobs), -1
	if b.table != nil && j.Kind != "" {
		if k, ok := b.table.Kind(j.Kind); ok {
			kind = k
		}
	}
	work := j.Work
	if kind < 0 || work == 0 {
		// If the speed or the work is unknown, the time limit replaces the work. A step then means one second of the
		// job.
		kind, work = -1, min(j.Limit, unlimited)
	}
	arrival := 0.0 // value for a job whose submission time is unknown
	if j.Submitted > 0 {
		arrival = min(0, j.Submitted-b.snapshot.Now)
	}
	b.jobs, b.kinds = append(b.jobs, i), append(b.kinds, kind)
	b.workload.Kinds = append(b.workload.Kinds,
		scheduler.Kind{Name: cmp.Or(j.Kind, "unknown"), Class: scheduler.Learning})
	n := float64(max(gpus, 1))
	b.workload.Jobs = append(b.workload.Jobs, scheduler.Job{Name: cmp.Or(j.Name, "unknown"), Kind: job, Work: work,
		GPUs: gpus, CPUs: j.CPUs / n, Memory: j.Memory / n,
		Arrival: arrival, Guessed: kind < 0})
	b.state.Remaining = append(b.state.Remaining, work)
	return job
}

// allowed reports whether a job may use a class of GPUs.
func (b *board) allowed(job, typ int) bool {
	if b.jobs[job] < 0 {
		return true
	}
	j, c := &b.snapshot.Jobs[b.jobs[job]], &b.classes[typ]
	n := &b.snapshot.Nodes[c.node]
	if j.GPUType != "" && !strings.EqualFold(j.GPUType, c.model) {
		return false
	}
	for _, label := range j.Requires {
		if !slices.Contains(n.Labels, label) {
			return false
		}
	}
	return !slices.ContainsFunc(n.Repels, func(taint string) bool {
		return !slices.ContainsFunc(j.Tolerates, func(t string) bool { return tolerates(t, taint) })
	})
}

// tolerates reports whether a toleration matches a taint. Both have the form KEY=VALUE:EFFECT. In a toleration, an
// empty effect matches all effects, "*" as value matches all values, and "*" as key matches all keys.
func tolerates(toleration, taint string) bool {
	left, effect, _ := cutLast(toleration)
	right, other, _ := cutLast(taint)
	if effect != "" && effect != other {
		return false
	}
	key, value, _ := strings.Cut(left, "=")
	name, _, _ := strings.Cut(right, "=")
	return key == "*" || left == right || value == "*" && key == name
}

func cutLast(s string) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// Alone implements scheduler.Speeds. The kind is the job of the workload, and the type is a class.
func (b *board) Alone(job, typ, n int, spread bool) float64 {
	if !b.allowed(job, typ) {
		return 0
	}
	if b.kinds[job] < 0 {
		return 1
	}
	if b.classes[typ].typ < 0 {
		return 0
	}
	return b.table.Alone(b.kinds[job], b.classes[typ].typ, n, spread)
}

// Shared implements scheduler.Speeds. Jobs of Slurm and Kubernetes do not share GPUs.
func (b *board) Shared(_, _, _, _ int) (float64, bool) { return 0, false }

// Mixed implements scheduler.Speeds.
func (b *board) Mixed(job int, counts []int, spread bool) (float64, bool) {
	if b.kinds[job] < 0 {
		return 0, false
	}
	var of []int
	for t, n := range counts {
		if n == 0 {
			continue
		}
		at := b.classes[t].typ
		if at < 0 || !b.allowed(job, t) {
			return 0, false
		}
		of = append(of, slices.Repeat([]int{0}, max(0, at+1-len(of)))...)
		of[at] += n
	}
	return b.table.Mixed(b.kinds[job], of, spread)
}

func (b *board) name(job int) string {
	if job < 0 || job >= len(b.jobs) || b.jobs[job] < 0 {
		return "unknown"
	}
	return b.snapshot.Jobs[b.jobs[job]].ID
}

// start applies an action of the policy to the state. If this is impossible, it returns the reason. In both cases, it
// removes the job from the queue.
func (b *board) start(a scheduler.Action) string {
	at := slices.Index(b.state.Queue, a.Job)
	speed, why := b.state.Fit(a.Job, a.GPUs)
	if at >= 0 {
		b.state.Queue = slices.Delete(b.state.Queue, at, at+1)
	}
	if why != scheduler.Fits {
		return why.String()
	}
	j := &b.workload.Jobs[a.Job]
	if want, got := b.snapshot.Jobs[b.jobs[a.Job]].Nodes, len(b.nodes(a.GPUs)); want > 0 && want != got {
		return fmt.Sprintf("the job requires %d nodes, but the policy chose GPUs of %d nodes", want, got)
	}
	takes := b.snapshot.Jobs[b.jobs[a.Job]].Takes
	for _, t := range takes {
		if left := b.left[t.Budget]; t.Amount > left {
			return fmt.Sprintf("%s has %v left, and the job needs %v", b.snapshot.Budgets[t.Budget].Name, max(0, left),
				t.Amount)
		}
	}
	for _, t := range takes {
		b.left[t.Budget] -= t.Amount
	}
	gpus := slices.Clone(a.GPUs)
	for _, g := range gpus {
		m := b.cluster.GPUs[g].Machine
		b.state.OnGPU[g] = append(b.state.OnGPU[g], a.Job)
		b.state.FreeCPUs[m] -= j.CPUs
		b.state.FreeMem[m] -= j.Memory
	}
	b.state.Running = append(b.state.Running, scheduler.Running{Job: a.Job, GPUs: gpus, Speed: speed, Remaining: j.Work,
		Leaves: math.Inf(1), Partner: -1})
	return ""
}

func (b *board) nodes(gpus []int) []string {
	var names []string
	for _, g := range gpus {
		names = append(names, b.cluster.Machines[b.cluster.GPUs[g].Machine].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (b *board) placement(a scheduler.Action) Placement {
	j := &b.snapshot.Jobs[b.jobs[a.Job]]
	p := Placement{Job: j.ID, Name: j.Name, Nodes: b.nodes(a.GPUs), GPUs: map[string]int{}, Reason: a.Reason}
	for _, g := range a.GPUs {
		p.GPUs[b.cluster.Types[b.cluster.GPUs[g].Type].Name]++
	}
	if b.kinds[a.Job] >= 0 {
		return p
	}
	note := "the kind of the job is not in the speed table, so all GPUs count as equally fast"
	switch {
	case j.Kind == "":
		note = "the kind of the job is unknown, so all GPUs count as equally fast"
	case j.Work == 0:
		note = "the work of the job is unknown, so all GPUs count as equally fast"
	}
	p.Reason = "these GPUs are free; " + note // without the policy's reason, which contains meaningless times
	return p
}

// waiting returns placements without nodes for the jobs that are still pending.
func (b *board) waiting(refused map[int]string) []Placement {
	var out []Placement
	placed := map[int]bool{}
	for _, r := range b.state.Running {
		if i := b.jobs[r.Job]; i >= 0 {
			placed[i] = true
		}
	}
	reasons := map[int]string{}
	for job, why := range refused {
		reasons[b.jobs[job]] = why
	}
	for i := range b.snapshot.Jobs {
		j := &b.snapshot.Jobs[i]
		if j.Phase == Pending && !placed[i] {
			out = append(out, Placement{Job: j.ID, Name: j.Name, Reason: cmp.Or(j.Skip, reasons[i], "the policy starts the job later: too few free GPUs, CPU cores or too little memory, or another job goes first")})
		}
	}
	return out
}
