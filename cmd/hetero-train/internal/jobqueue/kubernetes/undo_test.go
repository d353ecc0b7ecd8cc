package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// placedJob is a Job with UID u7 that Apply restricted to hosts.
func placedJob(hosts, spec, status string) string {
	return fmt.Sprintf(`{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"lm","namespace":"ml","uid":"u7","resourceVersion":"77","labels":{"hetero-train/schedule":"true"}},"spec":{%s"template":{"spec":{"affinity":{"nodeAffinity":`+
		`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":[%s]}]}]}}}}}},"status":{%s}}`,
		spec, hosts, status)
}

// Undo must revert exactly what Apply changed. It must leave out a Job that runs, has ended, or was changed since.
func TestUndo(t *testing.T) {
	web := start(t)
	const path = "/apis/batch/v1/namespaces/ml/jobs/lm"
	const pods = "/api/v1/namespaces/ml/pods"
	change := jobqueue.Change{Job: "ml/lm", Name: "lm", Identity: "u7", Nodes: []string{"volta1"},
		Hosts: []string{"host-volta1"}, Released: true}
	patch := func(to, version, rest string) string {
		return path + to + ` application/merge-patch+json {"metadata":{"uid":"u7","resourceVersion":"` + version + `"},` + rest
	}
	suspend := patch("", "77", `"spec":{"suspend":true}}`)
	begin := func(version string) string { return patch("/status", version, `"status":{"startTime":null}}`) }
	affinity := func(version string) string {
		return patch("", version, `"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}}}}}`)
	}
	const since = `"active":2,"startTime":"2026-01-02T03:04:05Z"`
	at := func(version, job string) string { return strings.Replace(job, `"77"`, `"`+version+`"`, 1) }
	ours := placedJob(`"host-volta1"`, "", since)
	stopped := placedJob(`"host-volta1"`, `"suspend":true,`, since)
	ready := placedJob(`"host-volta1"`, `"suspend":true,`, "")
	for i, c := range []struct {
		name, job, pods string
		later           []string // the Job at each read after the first one
		conflicts       int      // number of patches that the server refuses first
		over            bool
		what, fault     string
		patches         []string
	}{
		{name: "no pod runs", job: ours, later: []string{at("78", stopped), at("79", stopped), at("80", ready)},
			conflicts: 0, what: "suspend the Job, remove its affinity for volta1",
			patches: []string{suspend, begin("78"), begin("79"), affinity("80")}},
		{name: "changed by another between read and patch", job: ours, conflicts: 1,
			later: []string{at("78", placedJob(`"host-radeon1"`, "", since))}, what: "suspend the Job",
			fault: "another required node affinity", patches: []string{suspend}},
		{name: "changed by another while it was suspended", job: ours,
			later: []string{at("78", placedJob(`"host-radeon1"`, `"suspend":true,`, since))}, what: "suspend the Job",
			fault:   "the Job is suspended, and still has its affinity: the Job has another required node affinity",
			patches: []string{suspend}},
		{name: "resumed by another", job: ours, later: []string{at("78", ours)}, what: "suspend the Job",
			fault: "another user or program has resumed the Job", patches: []string{suspend}},
		{name: "suspended again by its owner", job: ready, what: "remove its affinity for volta1",
			patches: []string{affinity("77")}},
		{name: "a pod is ready", job: placedJob(`"host-volta1"`, "", `"active":2,"ready":1`), what: "pods of the Job run"},
		{name: "a pod runs and is not ready", job: ours, pods: `{"items":[{"status":{"phase":"Running"}}]}`,
			what: "pods of the Job run"},
		{name: "a pod has ended", job: placedJob(`"host-volta1"`, "", `"failed":1`), over: true,
			what: "pods of the Job have ended"},
		{name: "another affinity", job: placedJob(`"host-radeon1"`, "", ""), what: "another required node affinity"},
		{name: "the opposite affinity", job: strings.Replace(ours, `"In"`, `"NotIn"`, 1),
			what: "another required node affinity"},
		{name: "one more condition", job: strings.Replace(ours, `{"matchExpressions"`,
			`{"matchFields":[{"key":"metadata.name"}],"matchExpressions"`, 1), what: "another required node affinity"},
		{name: "Kueue has the Job now", job: strings.Replace(ours, `"labels":{`,
			`"labels":{"kueue.x-k8s.io/queue-name":"q",`, 1), what: "Kueue starts the Job"},
		{name: "no affinity", job: `{"kind":"Job","metadata":{"uid":"u7","resourceVersion":"1"},"spec":{}}`, over: true,
			what: "as before the change"},
		{name: "another Job", job: strings.Replace(ours, "u7", "u8", 1), over: true, what: "another Job has this name now"},
	} {
		for _, apply := range []bool{false, true} {
			if !apply && i > 0 {
				continue // skips further checks, because each call of kubectl takes CPU time
			}
			web.patches, web.conflicts = nil, c.conflicts
			// kubectl reads the Job itself before each patch.
			web.more = map[string]string{path: c.job, path + "/status": c.job, pods: `{"items":[{"status":{"phase":"Pending"}}]}`}
			if c.pods != "" {
				web.more[pods] = c.pods
			}
			web.after = map[string][]string{path: c.later}
			r, err := (&Client{Context: "test"}).Undo(context.Background(), change, apply)
			possible := c.patches != nil
			if r.Over != c.over || !strings.Contains(r.What, c.what) || r.Possible != possible ||
				r.Done != (apply && possible && c.fault == "") || (err != nil) != (apply && c.fault != "") ||
				err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s, apply %v: got %+v, %v, want %q %q", c.name, apply, r, err, c.what, c.fault)
			}
			want := c.patches
			if !apply {
				want = nil
			}
			same := len(web.patches) == len(want)
			for i := 0; same && i < len(want); i++ {
				same = sameJSON(web.patches[i], want[i])
			}
			if !same {
				t.Errorf("%s, apply %v: got patches %q\nwant %q", c.name, apply, web.patches, want)
			}
		}
	}
	gone := change
	gone.Job = "ml/gone"
	if r, err := (&Client{Context: "test"}).Undo(context.Background(), gone, true); err == nil || r.Over {
		t.Errorf("a server without the API: got %+v, %v, want an error", r, err)
	}
	web.missing = `jobs.batch \"gone\" not found`
	if r, err := (&Client{Context: "test"}).Undo(context.Background(), gone, true); err != nil || !r.Over ||
		!strings.Contains(r.What, "no longer exists") {
		t.Errorf("a deleted Job: got %+v, %v", r, err)
	}
	web.failing = path
	if _, err := (&Client{Context: "test"}).Undo(context.Background(), change, true); err == nil {
		t.Error("no rights: got no error")
	}
	web.more = map[string]string{"/api/v1/namespaces/kube-system": `{"metadata":{"uid":"c1"}}`}
	if id, err := (&Client{Context: "test"}).Cluster(context.Background()); err != nil || id != "c1" {
		t.Errorf("identity of the cluster: got %q, %v, want c1", id, err)
	}
	// From the second change on, the client reads only Jobs that are in its list of Jobs.
	web.failing, web.missing = "", ""
	job := placedJob(`"host-volta1"`, "", "")
	web.more = map[string]string{path: job, "/apis/batch/v1/jobs": `{"items":[` + job + `]}`,
		pods: `{"items":[{"status":{"phase":"Pending"}}]}`}
	client, later := &Client{Context: "test"}, change
	later.Identity = "u6" // belongs to an earlier Job with this name
	for i, c := range []struct {
		change         jobqueue.Change
		possible, over bool
	}{{change, true, false}, {gone, false, true}, {later, false, true}, {change, true, false}} {
		if r, err := client.Undo(context.Background(), c.change, false); err != nil || r.Possible != c.possible ||
			r.Over != c.over {
			t.Errorf("change %d of a log: got %+v, %v, want possible %v, over %v", i, r, err, c.possible, c.over)
		}
	}
}
