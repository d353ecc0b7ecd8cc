package slurm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/programs"
)

// Change describes what Apply will do with a placement of a job that Read returned.
func (c *Client) Change(p jobqueue.Placement) jobqueue.Change {
	return jobqueue.Change{Job: p.Job, Name: p.Name, Identity: c.submitted[p.Job], Nodes: p.Nodes,
		Released: c.held[p.Job]}
}

// identity distinguishes jobs with the same ID: Slurm's IDs begin again at 1 after the largest one.
func (j *job) identity() string {
	if math.IsNaN(float64(j.Submit)) {
		return ""
	}
	return "submitted at " + strconv.FormatFloat(float64(j.Submit), 'f', 0, 64)
}

// Undo removes the restriction of a pending job to nodes, and holds the job again if the change released it. Without
// apply, it changes nothing and reports what it would do. It does not stop a job that runs.
func (c *Client) Undo(ctx context.Context, ch jobqueue.Change, apply bool) (jobqueue.Reversal, error) {
	out := jobqueue.Reversal{Job: ch.Job, Name: ch.Name}
	queue, err := readQueue(ctx)
	if err != nil {
		return out, err
	}
	at := slices.IndexFunc(queue.Jobs, func(j job) bool { return strconv.FormatInt(j.ID, 10) == ch.Job })
	if at < 0 {
		out.Over, out.What = true, "the job is no longer in the queue"
		return out, nil
	}
	j := &queue.Jobs[at]
	now := expand(strings.Join(j.RequiredNodes, ",")) // words also splits within brackets
	slices.Sort(now)
	held := j.StateReason == heldByOwner
	switch {
	case j.identity() != ch.Identity:
		out.Over, out.What = true, "another job has this ID now"
		return out, nil
	case !strings.Contains(strings.ToUpper(strings.Join(j.State, " ")), "PENDING"):
		out.Over, out.What = true, "the job has started: its state is "+strings.Join(j.State, " ")
		return out, nil
	case len(now) == 0: // Apply sets the node list before it releases the job
		out.Over, out.What = true, "the job has no node list, as before the change"
		return out, nil
	case !slices.Equal(now, slices.Sorted(slices.Values(ch.Nodes))):
		out.What = fmt.Sprintf("the job has another node list now: got %s, want %s", strings.Join(now, ","),
			strings.Join(ch.Nodes, ","))
		return out, nil
	}
	hold := ch.Released && !held
	steps := []string{"remove its node list " + strings.Join(ch.Nodes, ",")}
	if hold {
		steps = slices.Insert(steps, 0, "hold the job again")
	}
	out.Possible, out.What = true, strings.Join(steps, ", ")
	if !apply {
		return out, nil
	}
	if hold { // first, so that the job does not start elsewhere
		if _, err := programs.Run(ctx, "scontrol", "uhold", ch.Job); err != nil {
			return out, err
		}
	}
	if _, err := programs.Run(ctx, "scontrol", "update", "JobId="+ch.Job, "ReqNodeList="); err != nil {
		if hold {
			err = fmt.Errorf("the job is held, and still restricted to %s: %w", strings.Join(now, ","), err)
		}
		return out, err
	}
	out.Done = true
	return out, nil
}
