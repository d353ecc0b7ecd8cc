package slurm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/programs"
)

// rank is what determines the place of a pending job in Slurm's queue, without its nice value.
type rank struct {
	priority float64 // with the nice value; NaN: Slurm does not report it
	skip     string  // reason why advise does not change the job
}

// readNice returns the nice values of all jobs by ID. The JSON of squeue does not contain them.
func readNice(ctx context.Context) (map[string]int, error) {
	text, err := programs.Run(ctx, "squeue", "--noheader", "--format=%A %y")
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for line := range strings.Lines(string(text)) {
		id, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		nice, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("squeue --format=%%A %%y: %w: got %q, want a job ID and a nice value", ErrOutput,
				strings.TrimSpace(line))
		}
		all[id] = nice
	}
	return all, nil
}

// mostNice is the largest absolute nice value that Slurm accepts.
const mostNice = 2147483645

// Order proposes nice values with which Slurm prefers the pending jobs in the order of a policy: first those that it
// places, in the order of placements, and then those that wait, in their current order. It sets the field Nice of each
// job whose nice value has to change, and removes the nodes of all jobs. A job that cannot take part gets the reason.
//
// Slurm subtracts the nice value from the priority of a job. The jobs exchange their priorities without nice values, so
// other jobs keep their places between them. If two of these priorities are equal, the later job gets a smaller one.
func (c *Client) Order(ctx context.Context, placements []jobqueue.Placement) error {
	nice, err := readNice(ctx)
	if err != nil {
		return err
	}
	c.order(placements, nice)
	return nil
}

// order is Order with the nice values of the jobs.
func (c *Client) order(placements []jobqueue.Placement, values map[string]int) {
	var order []int // indices into placements
	for i := range placements {
		p := &placements[i]
		r, known := c.ranks[p.Job]
		switch {
		case !known || r.skip != "":
		case c.held[p.Job]:
			p.Reason = "its owner holds the job, so it has no priority; submit it without --hold to use nice values"
		case math.IsNaN(r.priority) || !has(values, p.Job):
			p.Reason = "squeue reports no priority or no nice value of the job, want both"
		case r.priority == 0:
			p.Reason = "its priority is 0, so a user holds the job"
		default:
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &placements[a], &placements[b]
		switch {
		case len(x.Nodes) > 0 && len(y.Nodes) > 0:
			return cmp.Compare(a, b)
		case len(x.Nodes) > 0:
			return -1
		case len(y.Nodes) > 0:
			return 1
		}
		return cmp.Compare(c.ranks[y.Job].priority, c.ranks[x.Job].priority)
	})
	var free []float64 // priorities without nice values, the largest one first
	sorted := true
	for k, i := range order {
		r := c.ranks[placements[i].Job]
		free = append(free, r.priority+float64(values[placements[i].Job]))
		sorted = sorted && (k == 0 || c.ranks[placements[order[k-1]].Job].priority > r.priority)
	}
	for _, i := range order {
		if p := &placements[i]; len(p.Nodes) > 0 {
			p.Reason = "the policy starts the job now: " + p.Reason
		}
	}
	for i := range placements {
		placements[i].Nodes, placements[i].GPUs = nil, nil
	}
	if sorted {
		return // Slurm already prefers the jobs in this order
	}
	slices.SortFunc(free, func(a, b float64) int { return cmp.Compare(b, a) })
	last := math.Inf(1)
	for k, i := range order {
		p := &placements[i]
		from := values[p.Job]
		last = max(1, min(free[k], last-1)) // a priority of 0 would hold the job
		to := c.ranks[p.Job].priority + float64(from) - last
		switch {
		case math.Abs(to) > mostNice:
			p.Reason = fmt.Sprintf("its nice value would be %.0f, want at most %d: the priorities of the jobs differ too much",
				to, mostNice)
		case math.Round(to) != float64(from):
			p.Nice = &jobqueue.Nice{From: from, To: int(math.Round(to))}
		}
	}
}

func has(values map[string]int, job string) bool {
	_, ok := values[job]
	return ok
}

// renice sets the nice value of a pending job.
func (c *Client) renice(ctx context.Context, p jobqueue.Placement) error {
	_, err := programs.Run(ctx, "scontrol", "update", "JobId="+p.Job, "Nice="+strconv.Itoa(p.Nice.To))
	return refusal(err, p.Nice.From, p.Nice.To)
}

// refusal explains the error of a change of a nice value.
func refusal(err error, from, to int) error {
	if err != nil && to < from && strings.Contains(strings.ToLower(err.Error()), "denied") {
		return fmt.Errorf("%w; only an operator of Slurm can lower the nice value of a job", err)
	}
	return err
}

// keptNice returns why the nice value of a pending job must stay as it is, or "". values are those of all jobs.
func keptNice(ch jobqueue.Change, values map[string]int) (why string, over bool) {
	switch nice, ok := values[ch.Job]; {
	case !ok:
		return "the job is no longer in the queue", true
	case nice == ch.Nice.From:
		return fmt.Sprintf("the job has the nice value %d, as before the change", nice), true
	case nice != ch.Nice.To:
		return fmt.Sprintf("the job has another nice value now: got %d, want %d", nice, ch.Nice.To), false
	}
	return "", false
}

// reviseNice reverts a change of the nice value of a job that is pending. Like Undo, it decides by one copy of the
// values for all changes, and reads them again before it makes a change.
func (c *Client) reviseNice(ctx context.Context, ch jobqueue.Change, apply bool,
	out jobqueue.Reversal) (jobqueue.Reversal, error) {
	var err error
	if c.nice == nil {
		if c.nice, err = readNice(ctx); err != nil {
			return out, err
		}
	}
	if out.What, out.Over = keptNice(ch, c.nice); out.What != "" {
		return out, nil
	}
	if apply {
		if c.nice, err = readNice(ctx); err != nil {
			return out, err
		}
		if out.What, out.Over = keptNice(ch, c.nice); out.What != "" {
			return out, nil
		}
	}
	out.Possible, out.What = true, fmt.Sprintf("set its nice value from %d to %d", ch.Nice.To, ch.Nice.From)
	if apply {
		if err := undoNice(ctx, ch); err != nil {
			return out, err
		}
		out.Done = true
	}
	c.nice[ch.Job] = ch.Nice.From // for an older change of the same job
	return out, nil
}

// undoNice sets the nice value of before a change.
func undoNice(ctx context.Context, ch jobqueue.Change) error {
	_, err := programs.Run(ctx, "scontrol", "update", "JobId="+ch.Job, "Nice="+strconv.Itoa(ch.Nice.From))
	return refusal(err, ch.Nice.To, ch.Nice.From)
}
