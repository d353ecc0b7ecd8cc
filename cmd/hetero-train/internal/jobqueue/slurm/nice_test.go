package slurm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// With the proposed nice values, the priorities must have the order of the policy, and other jobs must keep their
// places.
func TestOrder(t *testing.T) {
	start := func(ids ...string) (all []jobqueue.Placement) { // jobs that the policy starts now
		for _, id := range ids {
			all = append(all, jobqueue.Placement{Job: id, Nodes: []string{"n1"}, Reason: "fits"})
		}
		return all
	}
	wait := func(ids ...string) (all []jobqueue.Placement) {
		for _, id := range ids {
			all = append(all, jobqueue.Placement{Job: id, Reason: "later"})
		}
		return all
	}
	for _, c := range []struct {
		name       string
		placements []jobqueue.Placement
		ranks      map[string]rank
		nice       map[string]int    // of before, if it is not 0
		want       map[string]string // by job: nice value from and to
		order      string
	}{
		{"in order", append(start("1"), wait("2", "3")...), map[string]rank{"1": {priority: 90}, "2": {priority: 80},
			"3": {priority: 70}}, nil, nil, "1 2 3"},
		{"the last one first", append(start("3"), wait("1", "2")...), map[string]rank{"1": {priority: 90},
			"2": {priority: 80}, "3": {priority: 70}}, nil, map[string]string{"3": "0 -20", "1": "0 10", "2": "0 10"}, "3 1 2"},
		{"with nice values of before", append(start("2", "1"), wait("3")...), map[string]rank{"1": {priority: 85},
			"2": {priority: 80}, "3": {priority: 70}}, map[string]int{"1": 5}, map[string]string{"2": "0 -10", "1": "5 10"}, "2 1 3"},
		{"back to the order without nice values", append(start("1"), wait("2")...),
			map[string]rank{"1": {priority: 80}, "2": {priority: 90}}, map[string]int{"1": 10, "2": -10},
			map[string]string{"1": "10 0", "2": "-10 0"}, "1 2"},
		{"equal priorities", start("2", "1"), map[string]rank{"1": {priority: 50}, "2": {priority: 50}}, nil,
			map[string]string{"1": "0 1"}, "2 1"},
		{"waiting jobs keep their order", wait("1", "2"),
			map[string]rank{"1": {priority: 70}, "2": {priority: 90}}, nil, nil,
			"2 1"},
		{"jobs that do not take part", append(start("2", "4"), wait("1", "5")...), map[string]rank{"1": {priority: 90},
			"2": {priority: 80}, "4": {priority: math.NaN()}, "5": {priority: 99, skip: "the job does not opt in"}}, nil,
			map[string]string{"2": "0 -10", "1": "0 10"}, "2 1"},
	} {
		client := Client{ranks: c.ranks}
		values := map[string]int{"1": 0, "2": 0, "3": 0, "4": 0, "5": 0}
		maps.Copy(values, c.nice)
		client.order(c.placements, values)
		priority := map[string]float64{}
		for _, p := range c.placements {
			got, want := "", c.want[p.Job]
			if p.Nice != nil {
				got = fmt.Sprint(p.Nice.From, " ", p.Nice.To)
			}
			if got != want || len(p.Nodes) > 0 || len(p.GPUs) > 0 {
				t.Errorf("%s: job %s: got nice values %q and nodes %v, want %q and none", c.name, p.Job, got, p.Nodes,
					want)
			}
			r := c.ranks[p.Job]
			if priority[p.Job] = r.priority; p.Nice != nil {
				priority[p.Job] += float64(values[p.Job] - p.Nice.To)
			}
		}
		order := strings.Fields(c.order)
		for i := range order[1:] {
			if a, b := order[i], order[i+1]; !(priority[a] > priority[b]) {
				t.Errorf("%s: job %s gets the priority %v, and job %s gets %v, want a smaller one", c.name, a,
					priority[a], b, priority[b])
			}
		}
	}
	held := Client{ranks: map[string]rank{"1": {}, "2": {priority: 5}, "3": {}}, held: map[string]bool{"1": true}}
	all := start("1", "2", "3")
	held.order(all, map[string]int{"1": 0, "2": 0, "3": 0})
	if !strings.Contains(all[0].Reason, "submit it without --hold") || !strings.Contains(all[2].Reason, "its priority is 0") ||
		all[0].Nice != nil || all[2].Nice != nil {
		t.Errorf("held jobs: got %+v", all)
	}
}

// Undo must set the nice value of before the change, also after two changes of a job, and leave out a job whose nice
// value is another one now.
func TestUndoOfNiceValues(t *testing.T) {
	change := func(from, to int) jobqueue.Change {
		return jobqueue.Change{Job: "7", Name: "lm", Identity: "submitted at 100",
			Nice: &jobqueue.Nice{From: from, To: to}}
	}
	for _, c := range []struct {
		name, state string
		nice        int
		changes     []jobqueue.Change // the newest first
		what        string            // of the last change
		calls       string
	}{
		{"one change", "PENDING", 20, []jobqueue.Change{change(0, 20)}, "set its nice value from 20 to 0",
			"update JobId=7 Nice=0\n"},
		{"two changes", "PENDING", 5, []jobqueue.Change{change(20, 5), change(0, 20)}, "set its nice value from 20 to 0",
			"update JobId=7 Nice=20\nupdate JobId=7 Nice=0\n"},
		{"another value", "PENDING", 3, []jobqueue.Change{change(0, 20)}, "another nice value now: got 3, want 20", ""},
		{"as before", "PENDING", 0, []jobqueue.Change{change(0, 20)}, "as before the change", ""},
		{"runs", "RUNNING", 20, []jobqueue.Change{change(0, 20)}, "has started", ""},
	} {
		for _, apply := range []bool{false, true} {
			dir := fake(t, map[string]string{
				"scontrol": "cd $(dirname $0); echo \"$@\" >> calls; echo ${3#Nice=} > nice\n",
				"squeue": "cd $(dirname $0); if [ \"$1\" = --noheader ]; then echo 7 $(cat nice); exit; fi\n" +
					"echo '{\"jobs\":[{\"job_id\":7,\"job_state\":\"" + c.state + "\",\"priority\":1,\"submit_time\":100}]}'\n"})
			if err := os.WriteFile(filepath.Join(dir, "nice"), fmt.Append(nil, c.nice), 0o600); err != nil {
				t.Fatal(err)
			}
			client, what := new(Client), ""
			for _, ch := range c.changes {
				r, err := client.Undo(context.Background(), ch, apply)
				if err != nil || r.Done != (apply && c.calls != "") || r.Possible != (c.calls != "") {
					t.Errorf("%s, apply %v: got %+v, %v", c.name, apply, r, err)
				}
				what = r.What
			}
			if !strings.Contains(what, c.what) {
				t.Errorf("%s, apply %v: got %q, want %q", c.name, apply, what, c.what)
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
	fake(t, map[string]string{"scontrol": "echo 'slurm_update error: Access/permission denied' >&2; exit 1\n"})
	p := jobqueue.Placement{Job: "7", Nice: &jobqueue.Nice{To: -5}}
	if err := new(Client).Apply(context.Background(), p); err == nil || !strings.Contains(err.Error(), "only an operator") {
		t.Errorf("a refused change: got %v", err)
	}
}
