package schedule

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
)

// A real cluster has jobs that policy dqn without gang can never start: no node has the label of the first job, and the
// second one already runs on GPUs of several types. The other jobs must get placements.
func TestJobsThatDQNAloneCannotStartDoNotStopTheOthers(t *testing.T) {
	inf := math.Inf(1)
	snapshot := &jobqueue.Snapshot{System: "test", Now: 1000, Nodes: []jobqueue.Node{
		{Name: "a", GPUs: []jobqueue.GPUs{{Type: "v100", Total: 4, Used: 2}}, CPUs: 16, Memory: 64},
		{Name: "b", GPUs: []jobqueue.GPUs{{Type: "t4", Total: 4, Used: 3}}, CPUs: 16, Memory: 64},
	}, Jobs: []jobqueue.Job{
		{ID: "1", Name: "mixed", Phase: jobqueue.Active, Started: 900, Limit: inf, GPUs: 5, On: []string{"a", "b"},
			Holds: [][]jobqueue.GPUs{{{Type: "v100", Total: 2}}, {{Type: "t4", Total: 3}}}},
		{ID: "2", Name: "nowhere", Submitted: 1, Limit: inf, GPUs: 1, Requires: []string{"gone"}},
		{ID: "3", Name: "several types", Submitted: 2, Limit: inf, GPUs: 6},
		{ID: "4", Name: "other", Submitted: 3, Limit: inf, GPUs: 1, GPUType: "h100"},
		{ID: "5", Name: "small", Submitted: 4, Limit: 60, GPUs: 1},
	}}
	for _, set := range []func(*policies){func(p *policies) { p.alone = true }, func(p *policies) { p.agents = true }} {
		p := &policies{command: "schedule advise", device: "reference", keep: true, explain: true,
			bound: &scheduler.Bound{Factor: 2, Seconds: 3600}}
		set(p)
		policy, err := p.get("dqn")
		if err != nil {
			t.Fatal(err)
		}
		placements, err := jobqueue.Propose(snapshot, policy, nil)
		if err != nil || p.failed(policy) != nil {
			t.Fatal(err, p.failed(policy))
		}
		var placed []string
		for _, at := range placements {
			if len(at.Nodes) > 0 {
				placed = append(placed, at.Job)
			} else if !strings.Contains(at.Reason, "no type has enough GPUs that run the job") {
				t.Errorf("agents %v: job %s: got the reason %q, want that of the missing baseline", p.agents, at.Job,
					at.Reason)
			}
		}
		if len(placements) != 4 || !slices.Equal(placed, []string{"5"}) {
			t.Errorf("agents %v: got %d placements with nodes for %v, want 4 with nodes for job 5", p.agents,
				len(placements), placed)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

// Each policy must have its own file, even if the names of policies differ only in separators, or are very long.
func TestGanttFiles(t *testing.T) {
	long := "dqn:/" + strings.Repeat("long/", 100)
	got := ganttFiles([]string{"gang", "dqn:a/b", "dqn:a-b", "dqn:A/b", long + "x", "dqn:/y/" + long[5:] + "x"})
	want := []string{"gantt-gang.svg", "gantt-dqn-a-b.svg", "gantt-dqn-a-b-2.svg", "gantt-dqn-A-b-3.svg"}
	if !slices.Equal(got[:4], want) {
		t.Errorf("got %q, want %q", got[:4], want)
	}
	for i, file := range got {
		if len(file) > 200 || slices.Contains(got[:i], file) {
			t.Errorf("got file %q of %d bytes, want a short one that differs from all others", file, len(file))
		}
	}
	for name, want := range map[string]string{"gang": "gang", "dqn": "dqn", "dqn:": "dqn:", "dqn:a/": "dqn:a",
		"dqn:./a//b/": "dqn:a/b"} {
		if got := cleaned(name); got != want {
			t.Errorf("policy %q: got %q, want %q", name, got, want)
		}
	}
}
