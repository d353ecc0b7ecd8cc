package jobqueue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// table contains speeds of two kinds on two types.
type table struct{}

func (table) Kind(name string) (int, bool) {
	k, ok := map[string]int{"lm": 0, "resnet": 1}[name]
	return k, ok
}
func (table) Type(name string) (int, bool) {
	t, ok := map[string]int{"t4": 0, "v100": 1}[name]
	return t, ok
}
func (table) Alone(kind, typ, n int, _ bool) float64 {
	return [2][2]float64{{1, 3}, {2, 2.5}}[kind][typ] * float64(n)
}
func (table) Shared(_, _, _, _ int) (float64, bool)        { return 0, false }
func (table) Mixed(_ int, _ []int, _ bool) (float64, bool) { return 0, false }

func cluster() *Snapshot {
	return &Snapshot{System: "test", Now: 1000, Nodes: []Node{
		{Name: "turing1", GPUs: []GPUs{{Type: "t4", Total: 4, Used: 1}}, CPUs: 16, UsedCPUs: 2, Memory: 64,
			Labels: []string{"main", "slow"}},
		{Name: "volta1", GPUs: []GPUs{{Type: "v100", Total: 4, Used: 4}}, CPUs: 16, UsedCPUs: 4, Memory: 64,
			Labels: []string{"main"}},
		{Name: "volta2", GPUs: []GPUs{{Type: "v100", Total: 4}}, CPUs: 16, Memory: 64, Labels: []string{"main"},
			Repels: []string{"gpu=yes:NoSchedule"}},
		{Name: "volta3", GPUs: []GPUs{{Type: "v100", Total: 4}}, CPUs: 16, Memory: 64, Labels: []string{"main"},
			Down: "drained"},
	}}
}

func propose(t *testing.T, s *Snapshot, name string, speeds Table) map[string]Placement {
	t.Helper()
	policy, err := scheduler.New(name, scheduler.Options{Explain: true, Keep: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Propose(s, policy, speeds)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Placement{}
	for _, p := range all {
		if _, twice := out[p.Job]; twice {
			t.Errorf("job %s has two proposals", p.Job)
		}
		out[p.Job] = p
	}
	return out
}

func TestPropose(t *testing.T) {
	s := cluster()
	inf := math.Inf(1)
	s.Jobs = []Job{
		{ID: "1", Name: "running", Phase: Active, Started: 900, Limit: inf, GPUs: 4, CPUs: 4, On: []string{"volta1"},
			Holds: [][]GPUs{{{Type: "v100", Total: 4}}}, Kind: "lm", Work: 1e4},
		{ID: "2", Name: "held", Limit: inf, GPUs: 1, Skip: "held by its user"},
		{ID: "3", Name: "tolerant", Submitted: 10, Limit: inf, GPUs: 2, GPUType: "V100", CPUs: 4, Memory: 8,
			Requires: []string{"main"}, Tolerates: []string{"gpu=*:NoSchedule"}, Kind: "lm", Work: 100},
		{ID: "4", Name: "strict", Submitted: 20, Limit: inf, GPUs: 2, GPUType: "v100"},
		{ID: "5", Name: "late", Submitted: 30, Limit: 60, GPUs: 1, Urgency: 5},
		{ID: "6", Name: "two", Submitted: 40, Limit: inf, GPUs: 2, Nodes: 2, Urgency: 4},
	}
	got := propose(t, s, "fcfs", table{})
	// By urgency, the order is late, two, tolerant, strict. fcfs stops at the first job that does not fit; strict is
	// the last job.
	if p := got["5"]; strings.Join(p.Nodes, " ") != "turing1" || p.GPUs["t4"] != 1 ||
		!strings.Contains(p.Reason, "kind of the job is unknown") {
		t.Errorf("late: got %+v", p)
	}
	if p := got["6"]; len(p.Nodes) != 0 || !strings.Contains(p.Reason, "requires 2 nodes") {
		t.Errorf("two: got %+v", p)
	}
	if p := got["3"]; strings.Join(p.Nodes, " ") != "volta2" || p.GPUs["v100"] != 2 ||
		strings.Contains(p.Reason, "not known") {
		t.Errorf("tolerant: got %+v", p)
	}
	if p := got["4"]; len(p.Nodes) != 0 ||
		p.Reason != "the policy starts the job later: too few free GPUs, CPU cores or too little memory, or another job goes first" {
		t.Errorf("strict: got %+v", p)
	}
	if p := got["2"]; len(p.Nodes) != 0 || p.Reason != "held by its user" {
		t.Errorf("held: got %+v", p)
	}
	if _, ok := got["1"]; ok {
		t.Error("got a proposal for a running job")
	}
}

func TestTolerates(t *testing.T) {
	for _, c := range []struct {
		toleration, taint string
		want              bool
	}{
		{"*", "a=b:NoSchedule", true}, {"*:", "a=b:NoSchedule", true}, {"*:NoSchedule", "a=b:NoExecute", false},
		{"a=b:NoSchedule", "a=b:NoSchedule", true}, {"a=b:", "a=b:NoExecute", true},
		{"a=*:NoSchedule", "a=c:NoSchedule", true},
		{"a=*:NoExecute", "a=c:NoSchedule", false}, {"a=b:NoSchedule", "a=c:NoSchedule", false},
		{"a=*:", "ab=c:NoSchedule", false},
		{"a=:NoSchedule", "a=:NoSchedule", true},
	} {
		if got := tolerates(c.toleration, c.taint); got != c.want {
			t.Errorf("%q tolerates %q: got %v, want %v", c.toleration, c.taint, got, c.want)
		}
	}
}

// In random clusters, policies that only start jobs must not violate the constraints of a job, or use more than the
// free resources.
func TestProposalsRespectTheCluster(t *testing.T) {
	for _, name := range scheduler.Names() {
		random := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			s := randomSnapshot(random)
			policy, err := scheduler.New(name, scheduler.Options{Explain: true, Keep: true})
			if scheduler.Stops(name) && err != nil {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all, err := Propose(s, policy, table{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			checkProposal(t, name, s, all)
		}
	}
}

func randomSnapshot(random *rand.Rand) *Snapshot {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	s := &Snapshot{Now: 1000}
	for i := range 1 + random.IntN(5) {
		n := Node{Name: fmt.Sprint("n", i), CPUs: 8, UsedCPUs: float64(random.IntN(5)), Memory: 64,
			UsedMemory: float64(random.IntN(40)), Labels: []string{pick("a", "b")},
			GPUs: []GPUs{{Type: pick("t4", "v100", "x"), Total: 1 + random.IntN(4)}}}
		n.GPUs[0].Used = random.IntN(n.GPUs[0].Total + 1)
		if random.IntN(5) == 0 {
			n.Down = "down"
		}
		if random.IntN(4) == 0 {
			n.Repels = []string{"k=v:NoSchedule"}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range random.IntN(8) {
		j := Job{ID: fmt.Sprint(i), GPUs: 1 + random.IntN(4), CPUs: float64(random.IntN(5)),
			Memory: float64(random.IntN(20)), Limit: 100, Kind: pick("lm", "resnet", "other", ""),
			Work: float64(random.IntN(3) * 50), GPUType: pick("", "", "t4", "v100")}
		if random.IntN(2) == 0 {
			j.Requires = []string{pick("a", "b")}
		}
		if random.IntN(2) == 0 {
			j.Tolerates = []string{"k=v:"}
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func checkProposal(t *testing.T, name string, s *Snapshot, all []Placement) {
	t.Helper()
	free := map[string]int{}
	for _, n := range s.Nodes {
		free[n.GPUs[0].Type] += n.GPUs[0].Total - n.GPUs[0].Used
	}
	if len(all) != len(s.Jobs) {
		t.Errorf("%s: got %d proposals for %d jobs", name, len(all), len(s.Jobs))
	}
	for _, p := range all {
		if p.Reason == "" {
			t.Errorf("%s: job %s has no reason", name, p.Job)
		}
		var j Job
		for _, other := range s.Jobs {
			if other.ID == p.Job {
				j = other
			}
		}
		count := 0
		for model, n := range p.GPUs {
			count += n
			if free[model] -= n; free[model] < 0 || j.GPUType != "" && model != j.GPUType {
				t.Errorf("%s: %+v for job %+v: GPUs are not free or of the wrong type", name, p, j)
			}
		}
		if len(p.Nodes) > 0 && count != j.GPUs {
			t.Errorf("%s: job %+v got %d GPUs", name, j, count)
		}
		for _, chosen := range p.Nodes {
			for _, n := range s.Nodes {
				if n.Name == chosen && (n.Down != "" || len(j.Requires) > 0 && j.Requires[0] != n.Labels[0] ||
					len(n.Repels) > 0 && len(j.Tolerates) == 0) {
					t.Errorf("%s: job %+v on node %+v", name, j, n)
				}
			}
		}
	}
}

// A job that needs more than one node must span nodes, even if each node has a different label.
func TestAJobSpansNodes(t *testing.T) {
	s := &Snapshot{Jobs: []Job{{ID: "1", GPUs: 8, Limit: 60, Requires: []string{"zone=a"}}}}
	for _, name := range []string{"n1", "n2", "n3"} {
		s.Nodes = append(s.Nodes,
			Node{Name: name, GPUs: []GPUs{{Type: "v100", Total: 4}}, Labels: []string{"host=" + name, "zone=a"}})
	}
	s.Nodes[1].Labels[1] = "zone=b"
	for _, name := range []string{"fcfs", "gang"} {
		if p := propose(t, s, name, nil)["1"]; strings.Join(p.Nodes, " ") != "n1 n3" {
			t.Errorf("%s: got %+v, want nodes n1 and n3", name, p)
		}
	}
}

// Each of two jobs fits alone, but together they exceed the rest of a quota. The quota does not limit the third job.
func TestJobsTakeFromABudget(t *testing.T) {
	s := &Snapshot{System: "test", Now: 1000, Budgets: []Budget{{Name: "the quota gpus", Left: 3}},
		Nodes: []Node{{Name: "n", GPUs: []GPUs{{Type: "v100", Total: 8}}, CPUs: 64, Memory: 1e12}},
		Jobs: []Job{
			{ID: "a", Name: "a", GPUs: 2, Limit: 100, Takes: []Take{{Budget: 0, Amount: 2}}},
			{ID: "b", Name: "b", GPUs: 2, Limit: 100, Takes: []Take{{Budget: 0, Amount: 2}}},
			{ID: "c", Name: "c", GPUs: 1, Limit: 100}}}
	got := propose(t, s, "fcfs", nil)
	if len(got["a"].Nodes) != 1 || len(got["b"].Nodes) != 0 || len(got["c"].Nodes) != 1 ||
		got["b"].Reason != "the quota gpus has 1 left, and the job needs 2" {
		t.Errorf("got %+v", got)
	}
}

// A job of 8 GPUs of unknown work has waited for ten days. With a bound, newly arrived jobs must not take the free
// GPUs.
func TestAGangDoesNotStarve(t *testing.T) {
	s := &Snapshot{System: "test", Now: 864000,
		Nodes: []Node{{Name: "n", CPUs: 64, Memory: 1e12, GPUs: []GPUs{{Type: "v100", Total: 8, Used: 4}}}}}
	s.Jobs = []Job{{ID: "runs", Phase: Active, GPUs: 4, On: []string{"n"}, Holds: [][]GPUs{{{Type: "v100", Total: 4}}},
		Started: 860000, Limit: 7200},
		{ID: "big", Submitted: 1, GPUs: 8, Limit: math.Inf(1)}}
	for i := range 3 {
		s.Jobs = append(s.Jobs, Job{ID: fmt.Sprint(i), Submitted: 863999, GPUs: 1, Limit: 7000})
	}
	for _, bound := range []bool{false, true} {
		policy, err := scheduler.New("gang", scheduler.Options{Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		if bound {
			policy = scheduler.Limit(policy, scheduler.StaticBound, scheduler.Options{Keep: true})
		}
		all, err := Propose(s, policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		starts := 0
		for _, p := range all {
			starts += len(p.Nodes)
		}
		if want := map[bool]int{false: 3, true: 0}[bound]; starts != want {
			t.Errorf("bound %v: got %d starts, want %d: %+v", bound, starts, want, all)
		}
	}
}
