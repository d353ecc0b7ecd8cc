package slurm

import (
	"context"
	"fmt"
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

// Cluster returns the identity of the cluster, its name and its first controller, for example "test on ctl1".
func (c *Client) Cluster(ctx context.Context) (string, error) {
	text, err := programs.Run(ctx, "scontrol", "show", "config")
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		values[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	name, control := values["ClusterName"], values["SlurmctldHost[0]"]
	if name == "" || name == "(null)" || control == "" {
		return "", fmt.Errorf("identity of the cluster: scontrol show config: %w: got ClusterName %q and SlurmctldHost[0] %q",
			ErrOutput, name, control)
	}
	control, _, _ = strings.Cut(control, "(") // cut off its address
	return name + " on " + control, nil
}

// kept returns the reason why a job must stay as it is, or "" if Undo may change it. The result over is true if no
// later attempt can revert the change. The result held is true if the owner holds the job.
func (q *answer) kept(ch jobqueue.Change) (why string, over, held bool) {
	at := slices.IndexFunc(q.Jobs, func(j job) bool { return strconv.FormatInt(j.ID, 10) == ch.Job })
	if at < 0 {
		return "the job is no longer in the queue", true, false
	}
	j := &q.Jobs[at]
	now := expand(strings.Join(j.RequiredNodes, ",")) // join again, because words also splits within brackets
	slices.Sort(now)
	remedy := fmt.Sprintf("; to remove only the node list: scontrol update JobId=%s ReqNodeList=", ch.Job)
	switch {
	case ch.Identity == "":
		return "the log does not have the time of its submission, so another job may have this ID now", true, false
	case j.identity() != ch.Identity:
		return "another job has this ID now", true, false
	case !strings.Contains(strings.ToUpper(strings.Join(j.State, " ")), "PENDING"):
		return "the job has started: its state is " + strings.Join(j.State, " "), true, false
	case len(now) == 0: // this case comes first, because Apply sets the node list before it releases the job
		return "the job has no node list, as before the change", true, false
	case !slices.Equal(now, slices.Sorted(slices.Values(ch.Nodes))):
		return fmt.Sprintf("the job has another node list now: got %s, want %s", strings.Join(now, ","),
			strings.Join(ch.Nodes, ",")), false, false
	case j.StateReason == heldByOwner:
		return "", false, true
	case !waits(j.StateReason):
		// Do not change a job that an administrator holds: the hold would become one of the owner, who can release it.
		return "Slurm holds the job: " + j.StateReason + remedy, false, false
	case j.Priority == 0:
		return "its priority is 0, so another user holds the job" + remedy, false, false
	}
	return "", false, false
}

// waits reports whether a job with this state reason only waits for resources, and no user holds it.
func waits(reason string) bool {
	switch reason {
	case "", "None", "Resources", "Priority", "ReqNodeNotAvail":
		return true
	}
	return strings.HasPrefix(reason, "ReqNodeNotAvail,") // the names of the nodes follow
}

// Undo removes the restriction of a pending job to nodes. It also holds the job again if the change released it.
// Without apply, it changes nothing and reports what it would do. It does not stop a running job.
//
// All calls of Undo use one copy of the queue for their decisions. Before each step of a change, Undo reads the queue
// again, because other users may have changed the job since then.
func (c *Client) Undo(ctx context.Context, ch jobqueue.Change, apply bool) (jobqueue.Reversal, error) {
	out := jobqueue.Reversal{Job: ch.Job, Name: ch.Name}
	if c.queue == nil {
		queue, err := readQueue(ctx)
		if err != nil {
			return out, err
		}
		c.queue = &queue
	}
	var held bool
	if out.What, out.Over, held = c.queue.kept(ch); out.What != "" {
		return out, nil
	}
	if apply {
		queue, err := readQueue(ctx)
		if err != nil {
			return out, err
		}
		if out.What, out.Over, held = queue.kept(ch); out.What != "" {
			return out, nil
		}
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
	if hold { // hold the job first, so that it does not start elsewhere
		if err := holdAgain(ctx, ch); err != nil {
			return out, err
		}
	}
	if _, err := programs.Run(ctx, "scontrol", "update", "JobId="+ch.Job, "ReqNodeList="); err != nil {
		if hold {
			err = fmt.Errorf("the job is held, and still restricted to %s: %w", strings.Join(ch.Nodes, ","), err)
		}
		return out, err
	}
	out.Done = true
	return out, nil
}

// holdAgain holds a job for its owner, and checks that no other user has changed the job in the meantime.
func holdAgain(ctx context.Context, ch jobqueue.Change) error {
	if _, err := programs.Run(ctx, "scontrol", "uhold", ch.Job); err != nil {
		return err
	}
	queue, err := readQueue(ctx)
	if err != nil {
		return fmt.Errorf("the job is held, and still restricted to %s: %w", strings.Join(ch.Nodes, ","), err)
	}
	why, _, held := queue.kept(ch)
	if why == "" && !held {
		why = "Slurm does not report the hold"
	}
	if why != "" {
		return fmt.Errorf("scontrol uhold %s was accepted, and its node list stays as it is: %s", ch.Job, why)
	}
	return nil
}
