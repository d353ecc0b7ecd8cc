package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/programs"
)

// Client runs the programs of Slurm in the search path.
type Client struct {
	held      map[string]bool   // whether the owner holds the job, so that Apply must release it; by job ID
	submitted map[string]string // identity of each job, by job ID
	queue     *answer           // queue that the first call of Undo has read
}

func readQueue(ctx context.Context) (queue answer, err error) {
	text, err := programs.Run(ctx, "squeue", "--json")
	if err != nil {
		return queue, err
	}
	if queue, err = parse("squeue --json", text); err == nil && queue.Jobs == nil {
		err = fmt.Errorf("squeue --json: %w: got no list of jobs", ErrOutput)
	}
	return queue, err
}

// Read returns the queue and the nodes. The parameter now is the time in seconds since 1970.
func (c *Client) Read(ctx context.Context, now float64) (*jobqueue.Snapshot, error) {
	queue, err := readQueue(ctx)
	if err != nil {
		return nil, err
	}
	name := "scontrol show nodes --json"
	text, err := programs.Run(ctx, "scontrol", "show", "nodes", "--json")
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		first := err
		name = "sinfo --json"
		if text, err = programs.Run(ctx, "sinfo", "--json"); err != nil {
			return nil, errors.Join(first, err)
		}
	}
	nodes, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	if len(nodes.Nodes) == 0 {
		return nil, fmt.Errorf("%s: %w: got no nodes", name, ErrOutput)
	}
	return c.snapshot(queue, nodes, now)
}

func (c *Client) snapshot(queue, nodes answer, now float64) (*jobqueue.Snapshot, error) {
	s := &jobqueue.Snapshot{System: "Slurm " + cmp.Or(queue.Meta.Slurm.Release, "of unknown version"), Now: now}
	for _, n := range nodes.Nodes {
		one, err := n.node()
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
		s.Nodes = append(s.Nodes, one)
	}
	c.held, c.submitted = map[string]bool{}, map[string]string{}
	for _, j := range queue.Jobs {
		if one, ok := j.job(); ok {
			c.held[one.ID], c.submitted[one.ID] = j.StateReason == heldByOwner, j.identity()
			s.Jobs = append(s.Jobs, one)
		}
	}
	return s, nil
}

// unusable are the states in which Slurm starts no job on a node.
var unusable = []string{"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING", "UNKNOWN",
	"FUTURE",
	"POWERED_DOWN", "POWERING_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "PLANNED_DOWN",
	"INVALID", "INVALID_REG", "ERROR"}

func (n *node) node() (jobqueue.Node, error) {
	const mb = 1 << 20
	out := jobqueue.Node{Name: n.Name, CPUs: n.CPUs.or(0), UsedCPUs: n.AllocCPUs.or(0),
		Memory: n.RealMemory.or(0) * mb, UsedMemory: n.AllocMemory.or(0) * mb, Labels: slices.Clone(n.Features)}
	for _, p := range n.Partitions {
		out.Labels = append(out.Labels, partition(p))
	}
	for _, state := range slices.Concat(n.State, n.StateFlags) {
		// Older versions of Slurm append marks: "idle*" means that the node does not respond, "idle~" that it is
		// powered down.
		state = strings.ToUpper(state)
		if slices.Contains(unusable, strings.TrimRight(state, "*~#!%$@^-+")) || strings.HasSuffix(state, "*") {
			out.Down = "state " + strings.ToLower(state)
			if n.Reason != "" {
				out.Down += ": " + n.Reason
			}
		}
	}
	total, err := parseGRES(n.GRES)
	if err != nil {
		return out, err
	}
	used, err := parseGRES(n.GRESUsed)
	if err != nil {
		return out, err
	}
	for _, g := range total {
		one := jobqueue.GPUs{Type: g.kind, Total: g.count}
		for _, u := range used {
			if u.kind == g.kind || u.kind == "" || u.kind == "(null)" {
				one.Used += u.count
			}
		}
		out.GPUs = append(out.GPUs, one)
	}
	return out, nil
}

// partition returns the label of the nodes of a partition. The prefix is necessary because features and partitions can
// have equal names.
func partition(name string) string { return "partition " + name }

// heldByOwner is the reason that Slurm states for a waiting job of `sbatch --hold`. If an administrator holds the job,
// the reason is different.
const heldByOwner = "JobHeldUser"

// mostSteps is the largest plausible number of steps of a job.
const mostSteps = 1e15

var (
	// noted matches a comment that opts in, with or without the kind and the work of the job.
	noted = regexp.MustCompile(`hetero-train:\s*(?:kind=([^;]+?)\s*(?:;\s*steps=(\S+)\s*)?)?$`)
	// simple matches a list of features that a node must all have.
	simple = regexp.MustCompile(`^[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*$`)
)

// job converts a record of Slurm. The result ok is false for jobs that are neither pending nor running.
func (j *job) job() (out jobqueue.Job, ok bool) {
	out = jobqueue.Job{ID: strconv.FormatInt(j.ID, 10), Name: j.Name, Submitted: j.Submit.or(0), Started: j.Start.or(0),
		Limit: j.TimeLimit.or(math.Inf(1)) * 60, Urgency: j.Priority.or(0), On: expand(j.Nodes)}
	if j.TimeLimit == 0 { // data parser v0.0.38 writes infinity as 0
		out.Limit = math.Inf(1)
	}
	states := strings.ToUpper(strings.Join(j.State, " "))
	switch {
	case strings.Contains(states, "PENDING"):
		out.Phase, out.Started = jobqueue.Pending, 0
	case strings.Contains(states, "RUNNING"), strings.Contains(states, "CONFIGURING"),
		strings.Contains(states, "COMPLETING"), strings.Contains(states, "SUSPENDED"):
		out.Phase = jobqueue.Active
	default:
		return out, false
	}
	if len(j.Detail) == len(out.On) {
		for _, detail := range j.Detail {
			holds, _ := parseGRES(detail)
			out.Holds = append(out.Holds, holdings(holds))
		}
	}
	damaged := ""
	if strings.Contains(j.Comment, "hetero-train:") {
		found := noted.FindStringSubmatch(strings.TrimSpace(j.Comment))
		if found == nil {
			damaged = fmt.Sprintf("the comment of the job is invalid: got %q, want hetero-train: kind=KIND; steps=STEPS, or hetero-train: alone",
				j.Comment)
		} else if out.Kind = found[1]; found[2] != "" {
			v, err := strconv.ParseFloat(found[2], 64)
			if err != nil || !(v > 0) || v > mostSteps {
				damaged = fmt.Sprintf(
					"the comment of the job is invalid: steps: got %s, want a number above 0 and at most %.0g",
					found[2], mostSteps)
			}
			out.Work = v
		}
	}
	if out.Skip = j.demand(&out); j.ID < 1 {
		out.Skip = "Slurm reports no job ID"
	}
	if out.Phase == jobqueue.Pending && !strings.Contains(j.Comment, "hetero-train:") {
		out.Skip = cmp.Or(out.Skip, "the job does not opt in: want a comment with hetero-train:")
	}
	out.Skip = cmp.Or(out.Skip, damaged)
	return out, true
}

func holdings(all []gpus) []jobqueue.GPUs {
	out := make([]jobqueue.GPUs, len(all))
	for i, g := range all {
		out[i] = jobqueue.GPUs{Type: g.kind, Total: g.count}
	}
	return out
}

// demand sets the resources that the job requests. It returns the reason why the package cannot propose a placement, or
// "".
func (j *job) demand(out *jobqueue.Job) string {
	const most = 1 << 20 // largest valid number of nodes, tasks or GPUs
	nodes, tasks := j.NodeCount.or(1), j.Tasks.or(1)
	if !(nodes >= 0 && nodes <= most && tasks >= 0 && tasks <= most) {
		return fmt.Sprintf("got %v nodes and %v tasks, want at most %d", nodes, tasks, most)
	}
	if v, ok := tres(j.Requested, "cpu"); ok {
		out.CPUs, _ = strconv.ParseFloat(v, 64)
	}
	var err error
	if out.Memory, err = tresMemory(j.Requested); err != nil {
		return err.Error()
	}
	request, times := j.TRESPerJob, 1.0
	switch {
	case j.TRESPerJob != "":
	case j.TRESPerNode != "":
		request, times = j.TRESPerNode, nodes
		out.Nodes = int(nodes)
	case j.TRESPerTask != "":
		request, times = j.TRESPerTask, tasks
	case j.TRESPerSocket != "":
		return "GPUs per socket are not supported"
	}
	if nodes > 1 {
		out.Nodes = int(nodes)
	}
	asked, err := parseGRES(request)
	switch {
	case err != nil:
		return err.Error()
	case len(asked) == 0:
		return "the job requests no GPU"
	case len(asked) > 1:
		return "the job requests GPUs of several types"
	}
	total := float64(asked[0].count) * times
	if !(total >= 1 && total <= most) {
		return fmt.Sprintf("got a request for %v GPUs, want 1 to %d", total, most)
	}
	out.GPUs, out.GPUType = int(total), asked[0].kind
	if len(j.Partition) == 1 {
		out.Requires = append(out.Requires, partition(j.Partition[0]))
	}
	if j.Features != "" {
		if !simple.MatchString(j.Features) {
			return fmt.Sprintf("the constraint %q of the job is not a list of features separated by &", j.Features)
		}
		out.Requires = append(out.Requires, strings.Split(j.Features, "&")...)
	}
	switch {
	case out.Phase == jobqueue.Active:
		return ""
	case len(j.Partition) > 1:
		return "the job names several partitions"
	case j.ArrayTasks != "":
		return "the job is a job array, which Slurm places task by task"
	case j.HetID.or(0) > 0:
		return "the job is part of a heterogeneous job"
	case len(j.RequiredNodes) > 0:
		return "the job already requires nodes " + strings.Join(j.RequiredNodes, ",")
	}
	switch j.StateReason {
	case "", "None", "Resources", "Priority", heldByOwner:
		return ""
	}
	return "Slurm holds the job: " + j.StateReason
}

// list matches one item of a node list: "gpu[01-03,7]-a" or "volta1".
var list = regexp.MustCompile(`([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)`)

// expand returns the names in a node list in Slurm's notation. It expands one bracket per item.
func expand(text string) []string {
	var names []string
	for _, m := range list.FindAllStringSubmatch(text, -1) {
		if m[2] == "" {
			names = append(names, m[1]+m[3])
			continue
		}
		for _, part := range strings.Split(m[2], ",") {
			from, to, isRange := strings.Cut(part, "-")
			first, err := strconv.Atoi(from)
			last := first
			if isRange && err == nil {
				last, err = strconv.Atoi(to)
			}
			if err != nil || last-first > 1<<16 || len(names) > 1<<16 { // Slurm's own limit is 64 Ki nodes
				continue
			}
			for i := first; i <= last; i++ {
				names = append(names, fmt.Sprintf("%s%0*d%s", m[1], len(from), i, m[3]))
			}
		}
	}
	return names
}

// Apply restricts a pending job to the nodes of a placement, and releases it if its owner holds it.
func (c *Client) Apply(ctx context.Context, p jobqueue.Placement) error {
	if len(p.Nodes) == 0 {
		return fmt.Errorf("job %s: got a placement without nodes", p.Job)
	}
	for _, n := range p.Nodes {
		if !name.MatchString(n) {
			return fmt.Errorf("job %s: got node %q, want a node name", p.Job, n)
		}
	}
	if _, err := programs.Run(ctx, "scontrol", "update", "JobId="+p.Job,
		"ReqNodeList="+strings.Join(p.Nodes, ",")); err != nil || !c.held[p.Job] {
		return err
	}
	if err := release(ctx, p.Job); err != nil {
		return fmt.Errorf("the job is restricted to %s, and still held: %w", strings.Join(p.Nodes, ","), err)
	}
	return nil
}

// release releases a job that its owner holds. It reads the queue again before, because an administrator may have held
// the job since the last read.
func release(ctx context.Context, id string) error {
	queue, err := readQueue(ctx)
	if err != nil {
		return err
	}
	for _, j := range queue.Jobs {
		if strconv.FormatInt(j.ID, 10) == id && j.StateReason != heldByOwner {
			return fmt.Errorf("its reason to wait is now %s", cmp.Or(j.StateReason, "none"))
		}
	}
	_, err = programs.Run(ctx, "scontrol", "release", id)
	return err
}

// name matches a valid node name. The package checks the names from Slurm, because they become part of a command line.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// identity returns a text that distinguishes jobs with the same ID, because Slurm's IDs begin again at 1 after the
// largest ID.
func (j *job) identity() string {
	if math.IsNaN(float64(j.Submit)) {
		return ""
	}
	return "submitted at " + strconv.FormatFloat(float64(j.Submit), 'f', 0, 64)
}
