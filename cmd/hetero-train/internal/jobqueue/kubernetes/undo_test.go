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
	return fmt.Sprintf(`{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"lm","namespace":"ml","uid":"u7"},"spec":{%s"template":{"spec":{"affinity":{"nodeAffinity":`+
		`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":[%s]}]}]}}}}}},"status":{%s}}`,
		spec, hosts, status)
}

// Undo must revert exactly what Apply changed, and leave out a Job that runs, ended, or was changed since.
func TestUndo(t *testing.T) {
	web := start(t)
	const path = "/apis/batch/v1/namespaces/ml/jobs/lm"
	change := jobqueue.Change{Job: "ml/lm", Name: "lm", Identity: "u7", Nodes: []string{"volta1"},
		Hosts: []string{"host-volta1"}, Released: true}
	const (
		suspend  = path + ` application/merge-patch+json {"metadata":{"uid":"u7"},"spec":{"suspend":true}}`
		start    = path + `/status application/merge-patch+json {"metadata":{"uid":"u7"},"status":{"startTime":null}}`
		affinity = path + ` application/merge-patch+json {"metadata":{"uid":"u7"},"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}}}}}`
	)
	for i, c := range []struct {
		name, job string
		over      bool
		what      string
		patches   []string
	}{
		{"no pod runs", placedJob(`"host-volta1"`, "", `"active":2,"startTime":"2026-01-02T03:04:05Z"`), false,
			"suspend the Job, remove its affinity for volta1", []string{suspend, start, affinity}},
		{"suspended again by its owner", placedJob(`"host-volta1"`, `"suspend":true,`, ""), false,
			"remove its affinity for volta1", []string{affinity}},
		{"a pod runs", placedJob(`"host-volta1"`, "", `"active":2,"ready":1`), false, "pods of the Job run", nil},
		{"a pod has ended", placedJob(`"host-volta1"`, "", `"failed":1`), true, "pods of the Job have ended", nil},
		{"another affinity", placedJob(`"host-radeon1"`, "", ""), false, "another required node affinity", nil},
		{"no affinity", `{"kind":"Job","metadata":{"uid":"u7"},"spec":{}}`, true, "as before the change", nil},
		{"another Job", strings.Replace(placedJob(`"host-volta1"`, "", ""), "u7", "u8", 1), true,
			"another Job has this name now", nil},
	} {
		for _, apply := range []bool{false, true} {
			if !apply && i > 0 {
				continue // each call of kubectl takes CPU time
			}
			web.patches, web.more = nil, map[string]string{path: c.job, path + "/status": c.job}
			r, err := (&Client{Context: "test"}).Undo(context.Background(), change, apply)
			if err != nil || r.Over != c.over || !strings.Contains(r.What, c.what) ||
				r.Possible != (c.patches != nil) || r.Done != (apply && c.patches != nil) {
				t.Errorf("%s, apply %v: got %+v, %v, want %q", c.name, apply, r, err, c.what)
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
	if r, err := (&Client{Context: "test"}).Undo(context.Background(), gone, true); err != nil || !r.Over ||
		!strings.Contains(r.What, "no longer exists") {
		t.Errorf("a deleted Job: got %+v, %v", r, err)
	}
	web.failing = path
	if _, err := (&Client{Context: "test"}).Undo(context.Background(), change, true); err == nil {
		t.Error("no rights: got no error")
	}
}
