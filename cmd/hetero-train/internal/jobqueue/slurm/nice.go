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

// rank is what determines the place of a pending job in Slurm's queue.
type rank struct {
	priority, nice float64 // NaN: Slurm does not report the number
	skip           string  // reason why advise does not change the job
}

// nice returns the nice value, NaN if Slurm does not report it.
func (j *job) nice() float64 {
	if j.NiceValue == nil {
		return math.NaN()
	}
	return float64(*j.NiceValue)
}

// mostNice is the largest absolute nice value that Slurm accepts.
const mostNice = 2147483645

// Order proposes nice values with which Slurm prefers the pending jobs in the order of a policy: first those that it
// places, in the order of placements, and then those that wait, in their current order. It sets [jobqueue.Placement.Nice]
// for each job whose nice value has to change, and removes the nodes of all jobs. A job that cannot take part gets the
// reason.
//
// Slurm subtracts the nice value from the priority of a job. The jobs exchange their priorities without nice values, so
// the sum of the priorities is about the same, and other jobs keep their places between them. If two of these priorities
// are equal, the later job gets a priority below.
func (c *Client) Order(placements []jobqueue.Placement) {
	var order []int // indices into placements
	for i := range placements {
		p := &placements[i]
		r, known := c.ranks[p.Job]
		switch {
		case !known || r.skip != "":
		case c.held[p.Job]:
			p.Reason = "its owner holds the job, so it has no priority; submit it without --hold to use nice values"
		case math.IsNaN(r.priority) || math.IsNaN(r.nice):
			p.Reason = "squeue --json reports no priority or no nice value of the job, want both"
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
		free = append(free, r.priority+r.nice)
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
		r := c.ranks[p.Job]
		last = max(1, min(free[k], last-1)) // a priority of 0 would hold the job
		to := r.priority + r.nice - last
		switch {
		case math.Abs(to) > mostNice:
			p.Reason = fmt.Sprintf("its nice value would be %.0f, want at most %d: the priorities of the jobs differ too much",
				to, mostNice)
		case math.Round(to) != r.nice:
			p.Nice = &jobqueue.Nice{From: int(r.nice), To: int(math.Round(to))}
		}
	}
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

// keptNice returns why the nice value of a pending job must stay as it is, or "".
func (j *job) keptNice(ch jobqueue.Change) (why string, over bool) {
	switch nice := j.nice(); {
	case nice == float64(ch.Nice.From):
		return fmt.Sprintf("the job has the nice value %d, as before the change", ch.Nice.From), true
	case nice != float64(ch.Nice.To):
		return fmt.Sprintf("the job has another nice value now: got %v, want %d", nice, ch.Nice.To), false
	}
	return "", false
}

// setNice changes the nice value of a job in this copy of the queue.
func (q *answer) setNice(ch jobqueue.Change) {
	for i := range q.Jobs {
		if strconv.FormatInt(q.Jobs[i].ID, 10) == ch.Job {
			value := number(ch.Nice.From)
			q.Jobs[i].NiceValue = &value
		}
	}
}

// undoNice sets the nice value of before a change. The queue was read just before.
func undoNice(ctx context.Context, ch jobqueue.Change) error {
	_, err := programs.Run(ctx, "scontrol", "update", "JobId="+ch.Job, "Nice="+strconv.Itoa(ch.Nice.From))
	return refusal(err, ch.Nice.To, ch.Nice.From)
}
