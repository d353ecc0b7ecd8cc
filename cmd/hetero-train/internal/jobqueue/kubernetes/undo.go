package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// Change describes what Apply will do with a placement of a Job that Read returned.
func (c *Client) Change(p jobqueue.Placement) jobqueue.Change {
	return jobqueue.Change{Job: p.Job, Name: p.Name, Identity: c.uids[p.Job], Nodes: p.Nodes, Hosts: c.hostsOf(p.Nodes),
		Released: true}
}

func (c *Client) hostsOf(nodes []string) []string {
	hosts := make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i] = c.hosts[n]
	}
	return hosts
}

// changed is the part of a Job that Apply changes and Undo reads.
type changed struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		Suspend  bool `json:"suspend"`
		Template struct {
			Spec struct {
				Affinity struct {
					NodeAffinity struct {
						Required *struct {
							Terms []struct {
								Expressions []struct {
									Key    string   `json:"key"`
									Values []string `json:"values"`
								} `json:"matchExpressions"`
							} `json:"nodeSelectorTerms"`
						} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
					} `json:"nodeAffinity"`
				} `json:"affinity"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		StartTime *time.Time `json:"startTime"`
		Ready     int        `json:"ready"`
		Succeeded int        `json:"succeeded"`
		Failed    int        `json:"failed"`
	} `json:"status"`
}

// placedOn returns the hosts of the affinity that Apply sets; ok is false if the Job has another required affinity.
func (j *changed) placedOn() (hosts []string, ok bool) {
	required := j.Spec.Template.Spec.Affinity.NodeAffinity.Required
	if required == nil {
		return nil, true
	}
	if len(required.Terms) != 1 || len(required.Terms[0].Expressions) != 1 ||
		required.Terms[0].Expressions[0].Key != host {
		return nil, false
	}
	return required.Terms[0].Expressions[0].Values, true
}

// Undo suspends a Job again, and removes the affinity that Apply set. Without apply, it changes nothing and reports
// what it would do. It does not stop a Job that has a ready pod, or a pod that has ended.
//
// Kubernetes permits a change of the affinity only while a Job is suspended and has no start time, so Undo also removes
// the start time from the status of the Job.
func (c *Client) Undo(ctx context.Context, ch jobqueue.Change, apply bool) (jobqueue.Reversal, error) {
	out := jobqueue.Reversal{Job: ch.Job, Name: ch.Name}
	namespace, name, ok := strings.Cut(ch.Job, "/")
	if !ok {
		return out, fmt.Errorf("job %s: got no namespace, want NAMESPACE/NAME", ch.Job)
	}
	text, err := c.kubectl(ctx, "get", "--raw",
		"/apis/batch/v1/namespaces/"+url.PathEscape(namespace)+"/jobs/"+url.PathEscape(name))
	if err != nil {
		if strings.Contains(err.Error(), "NotFound") {
			out.Over, out.What = true, "the Job no longer exists"
			return out, nil
		}
		return out, err
	}
	var j changed
	if err := json.Unmarshal(text, &j); err != nil {
		return out, fmt.Errorf("job %s: %w: %w", ch.Job, ErrOutput, err)
	}
	hosts, ours := j.placedOn()
	switch {
	case j.Metadata.UID != ch.Identity:
		out.Over, out.What = true, "another Job has this name now"
		return out, nil
	case ours && len(hosts) == 0:
		out.Over, out.What = true, "the Job has no required node affinity, as before the change"
		return out, nil
	case !ours || !slices.Equal(hosts, ch.Hosts):
		out.What = "the Job has another required node affinity now, want the one for " + strings.Join(ch.Nodes, ",")
		return out, nil
	case j.Status.Ready > 0:
		out.What = "pods of the Job run, and undo does not stop them"
		return out, nil
	case j.Status.Succeeded+j.Status.Failed > 0:
		out.Over, out.What = true, "pods of the Job have ended"
		return out, nil
	}
	steps := []string{"remove its affinity for " + strings.Join(ch.Nodes, ",")}
	if !j.Spec.Suspend {
		steps = slices.Insert(steps, 0, "suspend the Job")
	}
	out.Possible, out.What = true, strings.Join(steps, ", ")
	if !apply {
		return out, nil
	}
	if err := c.revert(ctx, namespace, name, &j); err != nil {
		return out, err
	}
	out.Done = true
	return out, nil
}

// revert patches a Job. Each patch names the UID, so the API server refuses it for a later Job with the same name.
func (c *Client) revert(ctx context.Context, namespace, name string, j *changed) error {
	type object = map[string]any
	patch := func(body object, more ...string) error {
		body["metadata"] = object{"uid": j.Metadata.UID}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = c.kubectl(ctx, slices.Concat([]string{"patch", "job", "--namespace=" + namespace, "--type=merge",
			"--patch=" + string(text)}, more, []string{"--", name})...)
		return err
	}
	if !j.Spec.Suspend {
		if err := patch(object{"spec": object{"suspend": true}}); err != nil {
			return err
		}
	}
	if !j.Spec.Suspend || j.Status.StartTime != nil {
		if err := patch(object{"status": object{"startTime": nil}}, "--subresource=status"); err != nil {
			return fmt.Errorf("the Job is suspended, and still has its affinity: %w", err)
		}
	}
	err := patch(object{"spec": object{"template": object{"spec": object{"affinity": object{
		"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": nil}}}}}})
	if err != nil {
		return fmt.Errorf("the Job is suspended, and still has its affinity: %w", err)
	}
	return nil
}
