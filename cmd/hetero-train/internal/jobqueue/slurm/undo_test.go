package slurm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// Undo must revert exactly what Apply changed. It must leave out a job that has started, or was changed since.
func TestUndo(t *testing.T) {
	change := jobqueue.Change{Job: "7", Name: "lm", Identity: "submitted at 100", Nodes: []string{"n1", "n2"},
		Released: true}
	const list, hold = "update JobId=7 ReqNodeList=\n", "uhold 7\n"
	job := func(state, reason, nodes string, submit int) string {
		priority := 1
		if reason == "Priority" {
			priority = 0
		}
		return fmt.Sprintf(`echo '{"jobs":[{"job_id":7,"job_state":%q,"priority":%d,"state_reason":%q,"required_nodes":%q,"submit_time":%d}]}'`,
			state, priority, reason, nodes, submit)
	}
	held := job("PENDING", "JobHeldUser", "n[1-2]", 100)
	for _, c := range []struct {
		name, state, reason, nodes string
		submit                     int
		after                      string // queue after scontrol uhold
		over                       bool
		what, calls, fault         string
	}{
		{name: "released", state: "PENDING", reason: "Resources", nodes: "n[1-2]", submit: 100, after: held,
			what: "hold the job again, remove its node list n1,n2", calls: hold + list},
		{name: "another list during the hold", state: "PENDING", reason: "Resources", nodes: "n[1-2]", submit: 100,
			after: job("PENDING", "JobHeldUser", "n3", 100), what: "hold the job again", calls: hold,
			fault: "its node list stays as it is: the job has another node list now"},
		{name: "started during the hold", state: "PENDING", reason: "Resources", nodes: "n[1-2]", submit: 100,
			after: job("RUNNING", "None", "n[1-2]", 100), what: "hold the job again", calls: hold,
			fault: "the job has started"},
		{name: "held again by its owner", state: "PENDING", reason: "JobHeldUser", nodes: "n2,n1", submit: 100,
			what: "remove its node list n1,n2", calls: list},
		{name: "held by an administrator", state: "PENDING", reason: "JobHeldAdmin", nodes: "n[1-2]", submit: 100,
			what: "Slurm holds the job: JobHeldAdmin; to remove only the node list: scontrol update JobId=7"},
		{name: "held by another user, before Slurm states the reason", state: "PENDING", reason: "Priority",
			nodes: "n[1-2]", submit: 100, what: "its priority is 0"},
		{name: "without a list", state: "PENDING", reason: "Resources", submit: 100, over: true,
			what: "as before the change"},
		{name: "another list", state: "PENDING", reason: "Resources", nodes: "n3", submit: 100,
			what: "another node list now: got n3, want n1,n2"},
		{name: "runs", state: "RUNNING", reason: "None", nodes: "n[1-2]", submit: 100, over: true,
			what: "has started: its state is RUNNING"},
		{name: "another job", state: "PENDING", reason: "Resources", nodes: "n[1-2]", submit: 200, over: true,
			what: "another job has this ID"},
	} {
		for _, apply := range []bool{false, true} {
			dir := fake(t, map[string]string{"scontrol": "echo \"$@\" >> $(dirname $0)/calls\n",
				"squeue": "if grep -q uhold $(dirname $0)/calls 2>/dev/null; then\n" + cmp.Or(c.after, "exit 1") +
					"\nelse\n" + job(c.state, c.reason, c.nodes, c.submit) + "\nfi\n"})
			r, err := new(Client).Undo(context.Background(), change, apply)
			if r.Over != c.over || !strings.Contains(r.What, c.what) || r.Possible != (c.calls != "") ||
				r.Done != (apply && c.calls != "" && c.fault == "") || (err != nil) != (apply && c.fault != "") ||
				err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s, apply %v: got %+v, %v, want %q %q", c.name, apply, r, err, c.what, c.fault)
			}
			want := c.calls
			if !apply {
				want = ""
			}
			if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); string(calls) != want {
				t.Errorf("%s, apply %v: got calls %q, want %q", c.name, apply, calls, want)
			}
		}
	}
	unknown := change
	unknown.Identity = ""
	fake(t, map[string]string{"squeue": `echo '{"jobs":[{"job_id":7,"job_state":"PENDING","required_nodes":"n1,n2"}]}'`})
	if r, err := new(Client).Undo(context.Background(), unknown, true); err != nil || r.Possible || !r.Over {
		t.Errorf("a job without a time of submission: got %+v, %v", r, err)
	}
	fake(t, map[string]string{"squeue": "echo '{\"jobs\":[]}'\n"})
	if r, err := new(Client).Undo(context.Background(), change, true); err != nil || !r.Over {
		t.Errorf("a job that left the queue: got %+v, %v", r, err)
	}
	fake(t, map[string]string{"scontrol": "case $1 in uhold) touch $(dirname $0)/held ;; *) echo 'Access denied' >&2; exit 1;; esac\n",
		"squeue": "if [ -e $(dirname $0)/held ]; then " + held + "; else " + job("PENDING", "None", "n1,n2", 100) + "; fi\n"})
	if _, err := new(Client).Undo(context.Background(), change, true); err == nil ||
		!strings.Contains(err.Error(), "the job is held, and still restricted to n1,n2") {
		t.Errorf("a refused update: got %v", err)
	}
}

func TestCluster(t *testing.T) {
	fake(t, map[string]string{"scontrol": "printf 'Configuration data\\nClusterName             = ml\\nSlurmctldHost[0]        = ctl1(10.0.0.1)\\n'\n"})
	if id, err := new(Client).Cluster(context.Background()); err != nil || id != "ml on ctl1" {
		t.Errorf("got %q, %v, want ml on ctl1", id, err)
	}
	fake(t, map[string]string{"scontrol": "echo 'ClusterName = (null)'\n"})
	if id, err := new(Client).Cluster(context.Background()); err == nil {
		t.Errorf("without a name: got %q and no error", id)
	}
}
