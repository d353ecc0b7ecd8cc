package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// In the window from 100 to 300 s, one of four jobs ends and two arrive.
func TestSteadyFigures(t *testing.T) {
	r := &scheduler.Result{Policy: "fcfs",
		Jobs: []scheduler.Completion{{Arrival: 0, Start: 0, Finish: 50}, {Arrival: 100, Start: 100, Finish: 150},
			{Arrival: 200, Start: 200, Finish: 310}, {Arrival: 300, Start: 310, Finish: 400}},
		GPUHours: []float64{0.1}, Available: []float64{0.2},
		Window: &scheduler.Window{From: 100, To: 300, Busy: 150, Available: 200}}
	w := &scheduler.Workload{Jobs: make([]scheduler.Job, 4)}
	f, err := FiguresOf(w, r)
	if err != nil {
		t.Fatal(err)
	}
	want := Steady{From: 100, To: 300, Throughput: 18, Utilization: 0.75, Jobs: 0.75, Arrivals: 0.01, Time: 105,
		Little: 0.75 / 1.05}
	if got := f.Steady; got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.Window = nil
	if f, err := FiguresOf(w, r); err != nil || f.Steady != nil {
		t.Errorf("a run without a window: got %+v, %v", f.Steady, err)
	}
}

// oneSpeed is the speed of all jobs on type 0; on type 1 they have half of it.
type oneSpeed struct{ scheduler.Speeds }

func (oneSpeed) Alone(_, gpuType, _ int, _ bool) float64 { return 2 / float64(1+gpuType) }

func TestFairnessAndCost(t *testing.T) {
	c := &scheduler.Cluster{Types: make([]scheduler.GPUType, 2), GPUs: []scheduler.GPU{{Type: 0}, {Type: 1}},
		Machines: []scheduler.Machine{{GPUs: []int{0, 1}}}}
	w := &scheduler.Workload{Kinds: make([]scheduler.Kind, 1),
		Jobs: []scheduler.Job{{Work: 100, GPUs: 1}, {Work: 200, GPUs: 1}}}
	for _, c2 := range []struct {
		finish   [2]float64
		want     float64
		slowdown float64
	}{{[2]float64{50, 100}, 1, 1}, {[2]float64{500, 1000}, 1, 10}, {[2]float64{50, 300}, 0.8, 2}} {
		r := &scheduler.Result{Jobs: []scheduler.Completion{{Finish: c2.finish[0]}, {Finish: c2.finish[1]}},
			GPUHours: []float64{2, 3}}
		var f Figures
		f.Judge(c, w, oneSpeed{}, []float64{10, 1}, r)
		if f.Fairness == nil || !near(*f.Fairness, c2.want, 1e-9) || f.Cost == nil || *f.Cost != 23 {
			t.Errorf("ends %v: got fairness %v and cost %v, want %v and 23", c2.finish, f.Fairness, f.Cost, c2.want)
		}
		if f.Slowdown == nil || !near(*f.Slowdown, c2.slowdown, 1e-9) {
			t.Errorf("ends %v: got slowdown %v, want %v", c2.finish, f.Slowdown, c2.slowdown)
		}
		f = Figures{}
		if f.Judge(c, w, oneSpeed{}, nil, r); f.Cost != nil {
			t.Errorf("without prices: got cost %v", *f.Cost)
		}
	}
}

// Fairness and slowdown must use only GPUs of the cluster. They must leave out jobs that no type of the cluster can
// run. Jobs shorter than 10 s count as jobs of 10 s.
func TestJudgeUsesGPUsOfTheCluster(t *testing.T) {
	c := &scheduler.Cluster{Types: make([]scheduler.GPUType, 2), GPUs: []scheduler.GPU{{}, {Type: 1}, {Type: 1}},
		Machines: []scheduler.Machine{{GPUs: []int{0, 1, 2}}}}
	w := &scheduler.Workload{Kinds: make([]scheduler.Kind, 1), Jobs: []scheduler.Job{
		{Work: 100, GPUs: 1}, // 50 s on the only GPU of type 0
		{Work: 100, GPUs: 2}, // 100 s on GPUs of type 1
		{Work: 100, GPUs: 3}, // no type has 3 GPUs
		{Work: 2, GPUs: 1}}}  // 1 s
	r := &scheduler.Result{Jobs: []scheduler.Completion{{Finish: 100}, {Finish: 200}, {Finish: 1000}, {Finish: 20}}}
	var f Figures
	f.Judge(c, w, oneSpeed{}, nil, r)
	sum, squares := 0.5+0.5+0.05, 0.25+0.25+0.0025
	if want := sum * sum / (3 * squares); f.Fairness == nil || !near(*f.Fairness, want, 1e-9) {
		t.Errorf("got fairness %v, want %v", f.Fairness, want)
	}
	if f.Slowdown == nil || !near(*f.Slowdown, 2, 1e-9) { // slowdowns: 2, 2, and 20 s / 10 s
		t.Errorf("got slowdown %v, want 2", f.Slowdown)
	}
	w.Jobs, r.Jobs = w.Jobs[2:3], r.Jobs[2:3]
	f = Figures{}
	if f.Judge(c, w, oneSpeed{}, nil, r); f.Fairness != nil || f.Slowdown != nil {
		t.Errorf("no job fits: got fairness %v and slowdown %v, want none", f.Fairness, f.Slowdown)
	}
}

// The p values of all policies against all baselines must be corrected together. Two baselines must be compared with
// each other only once.
func TestSeveralBaselines(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	seeds := make([]uint64, 12)
	a, b, c := Runs{Policy: "fcfs"}, Runs{Policy: "easy"}, Runs{Policy: "srf"}
	for i := range seeds {
		seeds[i] = uint64(i)
		base := 100 * (1 + random.Float64())
		for _, r := range []struct {
			runs   *Runs
			factor float64
		}{{&a, 1}, {&b, 0.97}, {&c, 0.95}} {
			life := base * r.factor * (1 + 0.05*random.NormFloat64())
			r.runs.Figures = append(r.runs.Figures, Figures{Completion: life, P99: 2 * life, Throughput: 1e3 / life,
				Utilization: 0.5, Steady: &Steady{Throughput: 1, Utilization: 0.5 * base / life}})
		}
	}
	s, err := NewAgainst([]string{"fcfs", "easy"}, seeds, []Runs{a, b, c})
	if err != nil {
		t.Fatal(err)
	}
	raw := []float64{contrast(b, a).Completion.Wilcoxon, contrast(c, a).Completion.Wilcoxon,
		contrast(c, b).Completion.Wilcoxon}
	want := holm(raw)
	first, second := s.Against[0].Policies, s.Against[1].Policies
	got := []float64{first[1].Completion.Wilcoxon, first[2].Completion.Wilcoxon, second[2].Completion.Wilcoxon}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("test %d: got p %v, want %v (not corrected: %v)", i, got[i], want[i], raw[i])
		}
	}
	if second[0].Completion.Wilcoxon != got[0] || !near(second[0].Completion.Mean, 1/first[1].Completion.Mean, 1e-9) {
		t.Errorf("the two baselines: got %+v and %+v, want one test and inverse ratios", first[1].Completion,
			second[0].Completion)
	}
	if !math.IsNaN(first[0].Completion.Wilcoxon) || !math.IsNaN(second[1].Completion.Wilcoxon) {
		t.Error("a baseline was tested against itself")
	}
	if s.Rows[2].CompletionRatio != first[2].Completion || s.Baseline != "fcfs" {
		t.Error("the rows do not refer to the first baseline")
	}
	if p := first[2].SteadyThroughput.Wilcoxon; p != 1 {
		t.Errorf("equal steady throughputs: got p %v, want 1", p)
	}
	c.Figures[3].Steady = nil // this run has no steady window
	if s, err = NewAgainst([]string{"easy"}, seeds, []Runs{b, c}); err != nil ||
		!math.IsNaN(s.Against[0].Policies[1].SteadyThroughput.Mean) || math.IsNaN(s.Rows[1].CompletionRatio.Mean) {
		t.Errorf("a run without a steady window: got %+v, %v", s, err)
	}
	for _, bad := range [][]string{nil, {"fcfs", "fcfs"}, {"rule"}} {
		if _, err := NewAgainst(bad, seeds, []Runs{a}); err == nil {
			t.Errorf("baselines %q: got no error", bad)
		}
	}
}
