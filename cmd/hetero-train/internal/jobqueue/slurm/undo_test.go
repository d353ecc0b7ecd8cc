package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// Undo must revert exactly what Apply changed, and leave out a job that has started, or was changed since.
func TestUndo(t *testing.T) {
	change := jobqueue.Change{Job: "7", Name: "lm", Identity: "submitted at 100", Nodes: []string{"n1", "n2"},
		Released: true}
	const list, hold = "update JobId=7 ReqNodeList=\n", "uhold 7\n"
	for _, c := range []struct {
		name, state, reason, nodes string
		submit                     int
		over                       bool
		what, calls                string
	}{
		{"released", "PENDING", "Resources", "n[1-2]", 100, false, "hold the job again, remove its node list n1,n2",
			hold + list},
		{"held again by its owner", "PENDING", "JobHeldUser", "n2,n1", 100, false, "remove its node list n1,n2", list},
		{"without a list", "PENDING", "Resources", "", 100, true, "as before the change", ""},
		{"another list", "PENDING", "Resources", "n3", 100, false, "another node list now: got n3, want n1,n2", ""},
		{"runs", "RUNNING", "None", "n[1-2]", 100, true, "has started: its state is RUNNING", ""},
		{"another job", "PENDING", "Resources", "n[1-2]", 200, true, "another job has this ID", ""},
	} {
		for _, apply := range []bool{false, true} {
			dir := fake(t, map[string]string{"scontrol": "echo \"$@\" >> $(dirname $0)/calls\n",
				"squeue": fmt.Sprintf(`echo '{"jobs":[{"job_id":7,"job_state":%q,"state_reason":%q,"required_nodes":%q,"submit_time":%d}]}'`+"\n",
					c.state, c.reason, c.nodes, c.submit)})
			r, err := new(Client).Undo(context.Background(), change, apply)
			if err != nil || r.Over != c.over || !strings.Contains(r.What, c.what) || r.Possible != (c.calls != "") ||
				r.Done != (apply && c.calls != "") {
				t.Errorf("%s, apply %v: got %+v, %v, want %q", c.name, apply, r, err, c.what)
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
	fake(t, map[string]string{"squeue": "echo '{\"jobs\":[]}'\n"})
	if r, err := new(Client).Undo(context.Background(), change, true); err != nil || !r.Over {
		t.Errorf("a job that left the queue: got %+v, %v", r, err)
	}
	fake(t, map[string]string{"scontrol": "case $1 in uhold) ;; *) echo 'Access denied' >&2; exit 1;; esac\n",
		"squeue": `echo '{"jobs":[{"job_id":7,"job_state":"PENDING","required_nodes":"n1,n2","submit_time":100}]}'` + "\n"})
	if _, err := new(Client).Undo(context.Background(), change, true); err == nil ||
		!strings.Contains(err.Error(), "the job is held, and still restricted to n1,n2") {
		t.Errorf("a refused update: got %v", err)
	}
}
