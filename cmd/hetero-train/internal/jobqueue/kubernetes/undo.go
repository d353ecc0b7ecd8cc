package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// Cluster returns the identity of the cluster: the UID of the namespace kube-system, which differs between clusters.
func (c *Client) Cluster(ctx context.Context) (string, error) {
	const path = "/api/v1/namespaces/kube-system"
	text, err := c.kubectl(ctx, "get", "--raw", path)
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	var n struct {
		Metadata meta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &n); err != nil || n.Metadata.UID == "" {
		return "", fmt.Errorf("identity of the cluster: kubectl get --raw %s: %w: got no metadata.uid", path,
			errors.Join(ErrOutput, err))
	}
	return n.Metadata.UID, nil
}

// changed is a Job with the parts that Apply changes and Undo reads.
type changed struct {
	job  job `json:"-"`
	Spec struct {
		Suspend  bool `json:"suspend"`
		Template struct {
			Spec struct {
				Affinity struct {
					NodeAffinity struct {
						Required *struct {
							Terms []term `json:"nodeSelectorTerms"`
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

type term struct {
	Fields      []json.RawMessage `json:"matchFields"`
	Expressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// placedOn returns the hosts in the affinity that Apply has set. The result ok is false if the Job has another required
// affinity.
func (j *changed) placedOn() (hosts []string, ok bool) {
	required := j.Spec.Template.Spec.Affinity.NodeAffinity.Required
	switch {
	case required == nil:
		return nil, true
	case len(required.Terms) != 1 || len(required.Terms[0].Fields) > 0 || len(required.Terms[0].Expressions) != 1:
		return nil, false
	}
	e := required.Terms[0].Expressions[0]
	return e.Values, e.Key == host && e.Operator == "In" && len(e.Values) > 0
}

// get reads a Job. The result found is false if the cluster has no Job with this name.
func (c *Client) get(ctx context.Context, namespace, name string) (j changed, found bool, err error) {
	text, err := c.kubectl(ctx, "get", "--raw",
		"/apis/batch/v1/namespaces/"+url.PathEscape(namespace)+"/jobs/"+url.PathEscape(name))
	if err != nil {
		// Compare the text, because a missing API has the same reason (NotFound), but does not mean that the Job is
		// gone.
		if strings.Contains(err.Error(), fmt.Sprintf("jobs.batch %q not found", name)) {
			return j, false, nil
		}
		return j, false, err
	}
	if err = errors.Join(json.Unmarshal(text, &j), json.Unmarshal(text, &j.job)); err == nil &&
		j.job.Metadata.ResourceVersion == "" {
		err = errors.New("got no metadata.resourceVersion")
	}
	if err != nil {
		return j, false, fmt.Errorf("job %s/%s: %w: %w", namespace, name, ErrOutput, err)
	}
	return j, true, nil
}

// begun reports whether a pod of a Job has left the phase Pending. The status of the Job is not sufficient, because a
// running pod may not be ready yet.
func (c *Client) begun(ctx context.Context, namespace, uid string) (bool, error) {
	pods, err := fetch[pod](ctx, c, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods",
		url.Values{"labelSelector": {"batch.kubernetes.io/controller-uid=" + uid}})
	return slices.ContainsFunc(pods, func(p pod) bool { return p.Status.Phase != "Pending" }), err
}

// kept returns the reason why a Job must stay as it is, or "" if Undo may change it. The result over is true if no
// later attempt can revert the change. The parameter suspended is true if Undo has suspended the Job, so that its pods
// may end.
func (j *changed) kept(ch jobqueue.Change, suspended bool) (why string, over bool) {
	hosts, ours := j.placedOn()
	switch {
	case ch.Identity == "" || j.job.Metadata.UID != ch.Identity:
		return "another Job has this name now", true
	case ours && len(hosts) == 0:
		return "the Job has no required node affinity, as before the change", true
	case !ours || !slices.Equal(hosts, ch.Hosts):
		return "the Job has another required node affinity now, want the one for " + strings.Join(ch.Nodes, ","), false
	case j.job.held() != "":
		return j.job.held(), false
	case suspended:
	case j.Status.Ready > 0:
		return running, false
	case j.Status.Succeeded+j.Status.Failed > 0:
		return "pods of the Job have ended", true
	}
	return "", false
}

const running = "pods of the Job run, and undo does not stop them"

// Undo suspends a Job again, and removes the affinity that Apply set. Without apply, it reports these
// changes but makes none. It does not change a Job if one of its pods runs or has ended.
//
// Kubernetes permits a change of the affinity only while a Job is suspended and has no start time. Undo therefore also
// removes the start time from the status of the Job.
func (c *Client) Undo(ctx context.Context, ch jobqueue.Change, apply bool) (jobqueue.Reversal, error) {
	out := jobqueue.Reversal{Job: ch.Job, Name: ch.Name}
	namespace, name, ok := strings.Cut(ch.Job, "/")
	if !ok {
		return out, fmt.Errorf("job %s: got no namespace, want NAMESPACE/NAME", ch.Job)
	}
	gone, err := c.gone(ctx, ch)
	if err != nil {
		return out, err
	}
	var j changed
	found := false
	if !gone {
		if j, found, err = c.get(ctx, namespace, name); err != nil {
			return out, err
		}
	}
	if !found {
		out.Over, out.What = true, "the Job no longer exists"
		return out, nil
	}
	if out.What, out.Over = j.kept(ch, false); out.What != "" {
		return out, nil
	}
	if begun, err := c.begun(ctx, namespace, ch.Identity); err != nil || begun {
		out.What = running
		return out, err
	}
	steps := []string{"remove its affinity for " + strings.Join(ch.Nodes, ",")}
	if !j.Spec.Suspend {
		steps = slices.Insert(steps, 0, "suspend the Job")
	}
	out.Possible, out.What = true, strings.Join(steps, ", ")
	if !apply {
		return out, nil
	}
	if err := c.revert(ctx, namespace, name, ch, j); err != nil {
		return out, err
	}
	out.Done = true
	return out, nil
}

// gone reports whether the Job of a change no longer exists. A log may have thousands of changes whose Jobs are gone.
// Therefore, the second call reads a list of all Jobs, and later calls do not start kubectl for a Job that the list
// lacks.
func (c *Client) gone(ctx context.Context, ch jobqueue.Change) (bool, error) {
	if c.undos++; c.undos < 2 {
		return false, nil
	}
	if c.exist == nil {
		jobs, err := fetch[job](ctx, c, "/apis/batch/v1/jobs", url.Values{})
		if err != nil {
			return false, err
		}
		c.exist = map[string]string{}
		for _, j := range jobs {
			c.exist[j.Metadata.Namespace+"/"+j.Metadata.Name] = j.Metadata.UID
		}
	}
	return c.exist[ch.Job] != ch.Identity, nil
}

// revert repeats a patch that meets a newer version, because the Job controller also writes the status of a suspended
// Job.
const (
	mostTries = 20
	retry     = 250 * time.Millisecond
)

// revert patches a Job in several steps. Each patch contains the version of the Job that revert has checked. If the Job
// has changed since then, the API server refuses the patch, and revert reads and checks the Job again.
func (c *Client) revert(ctx context.Context, namespace, name string, ch jobqueue.Change, j changed) error {
	type object = map[string]any
	suspended := false // whether revert has suspended the Job
	fail := func(err error) error {
		if suspended {
			return fmt.Errorf("the Job is suspended, and still has its affinity: %w; to resume it: kubectl patch job --namespace=%s %s --patch '{\"spec\":{\"suspend\":false}}'",
				err, namespace, name)
		}
		return err
	}
	var last error // latest conflict
	for try := range mostTries {
		if try > 0 {
			found := false
			var err error
			if j, found, err = c.get(ctx, namespace, name); err != nil {
				return fail(err)
			}
			why, _ := j.kept(ch, suspended)
			switch {
			case !found:
				why = "the Job no longer exists"
			case why == "" && suspended && !j.Spec.Suspend:
				why = "another user or program has resumed the Job"
			}
			if why != "" {
				return fail(errors.New(why))
			}
			if !j.Spec.Suspend { // a pod may have started since the last check
				if begun, err := c.begun(ctx, namespace, ch.Identity); err != nil || begun {
					return fail(cmp.Or(err, errors.New(running)))
				}
			}
		}
		var body object
		var more []string
		switch {
		case !j.Spec.Suspend:
			body = object{"spec": object{"suspend": true}}
		case j.Status.StartTime != nil:
			body, more = object{"status": object{"startTime": nil}}, []string{"--subresource=status"}
		default:
			body = object{"spec": object{"template": object{"spec": object{"affinity": object{
				"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": nil}}}}}}
		}
		body["metadata"] = object{"uid": j.job.Metadata.UID, "resourceVersion": j.job.Metadata.ResourceVersion}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = c.kubectl(ctx, slices.Concat([]string{"patch", "job", "--namespace=" + namespace, "--type=merge",
			"--patch=" + string(text)}, more, []string{"--", name})...)
		switch {
		case err == nil && j.Spec.Suspend && j.Status.StartTime == nil:
			return nil
		case err == nil:
			suspended = suspended || !j.Spec.Suspend
			continue
		case !strings.Contains(err.Error(), "(Conflict)"):
			return fail(err)
		}
		last = err
		select {
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-time.After(retry):
		}
	}
	return fail(fmt.Errorf("the Job changed during each of %d attempts: %w", mostTries,
		cmp.Or(last, errors.New("its start time comes back"))))
}
