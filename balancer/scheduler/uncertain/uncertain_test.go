package uncertain_test

import (
	"math"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

func generated(t *testing.T, jobs int) (*workload.Setup, *scheduler.Workload) {
	t.Helper()
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: 0.8, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return setup, w
}

// The logarithms of the errors must have mean 0 and the stated deviation. They must depend only on the seed. An
// estimate or an error that a job states itself must take precedence.
func TestStatedEstimates(t *testing.T) {
	_, w := generated(t, 4000)
	w.Jobs[7].Estimate, w.Jobs[8].Error = 123, 3
	o := uncertain.Options{Seed: 1, List: 5, Sigma: 0.5}
	got := uncertain.Stated(w, o)
	if !slices.Equal(got, uncertain.Stated(w, o)) {
		t.Error("equal seeds: got different estimates")
	}
	var sum, squares float64
	for i, steps := range got {
		if i == 7 || i == 8 {
			continue
		}
		x := math.Log(steps / w.Jobs[i].Work)
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(got) - 2)
	// The tolerances are 4 standard errors.
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 4*0.5/math.Sqrt(n) ||
		math.Abs(deviation-0.5) > 4*0.5/math.Sqrt(2*n) {
		t.Errorf("got a mean error of %v with deviation %v, want 0 with 0.5", mean, deviation)
	}
	if got[7] != 123 {
		t.Errorf("job with an estimate of 123 steps: got %v", got[7])
	}
	half := uncertain.Stated(w, uncertain.Options{Seed: 1, List: 5, Sigma: 0.25})
	wide, narrow := math.Log(got[9]/w.Jobs[9].Work), math.Log(half[9]/w.Jobs[9].Work)
	if math.Abs(wide-2*narrow) > 1e-9 {
		t.Errorf("twice the deviation: got errors %v and %v, want twice the error", wide, narrow)
	}
	if got[8] != half[8] {
		t.Errorf("job with its own deviation: got %v and %v steps, want equal estimates", got[8], half[8])
	}
	for _, other := range []uncertain.Options{{Seed: 2, List: 5, Sigma: 0.5}, {Seed: 1, List: 6, Sigma: 0.5}} {
		if slices.Equal(got, uncertain.Stated(w, other)) {
			t.Errorf("options %+v: got the estimates of another seed", other)
		}
	}
	for _, bad := range []uncertain.Options{{Sigma: -1}, {Sigma: math.NaN()}, {Drift: 6}} {
		if bad.Check() == nil {
			t.Errorf("options %+v: got no error", bad)
		}
	}
}

// truthful is a policy that checks the state of another policy: estimates are consistent, and the true work is hidden.
type truthful struct {
	scheduler.Policy
	t      *testing.T
	stated []float64
	raised int
}

func (p *truthful) Decide(s *scheduler.State) scheduler.Action {
	for i := range s.Running {
		r := &s.Running[i]
		if r.Remaining != s.Remaining[r.Job] || !(r.Remaining > 0) {
			p.t.Errorf("job %d at %v s: got %v and %v remaining steps, want equal numbers above 0", r.Job, s.Now,
				r.Remaining, s.Remaining[r.Job])
		}
	}
	for _, q := range s.Queue {
		estimate := s.Workload.Jobs[q].Work
		if double := math.Log2(estimate / p.stated[q]); double < 0 || double != math.Trunc(double) {
			p.t.Errorf("job %d: got an estimate of %v steps, want %v times a power of two", q, estimate, p.stated[q])
		} else if double > 0 {
			p.raised++
		}
		if left := s.Remaining[q]; !(left > 0 && left <= estimate) {
			p.t.Errorf("job %d: got %v of %v steps left", q, left, estimate)
		}
	}
	return p.Policy.Decide(s)
}

// All policies must finish all jobs although estimates are wrong and GPUs fail. The estimates that a policy sees must
// depend only on the options.
func TestPoliciesRunOnEstimates(t *testing.T) {
	setup, w := generated(t, 150)
	o := uncertain.Options{Seed: 1, Sigma: 1.5, Drift: 0.5}
	changes := []simulate.Change{{At: 2000, GPU: 0}, {At: 2000, GPU: 1}, {At: 9000, GPU: 0, Up: true},
		{At: 9000, GPU: 1, Up: true}}
	raised := 0
	for _, name := range scheduler.Names() {
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		watched := &truthful{Policy: p, t: t, stated: uncertain.Stated(w, o)}
		hidden := uncertain.Hide(watched, o)
		run := func() *scheduler.Result {
			r, err := simulate.Run(hidden, setup.Cluster, w, setup.Speeds,
				simulate.Options{Changes: changes, Checkpoint: 300})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r
		}
		first, second := run(), run()
		for i := range first.Jobs {
			if math.IsNaN(first.Jobs[i].Finish) || first.Jobs[i] != second.Jobs[i] {
				t.Fatalf("%s: job %d: got %+v and %+v, want two equal complete runs", name, i, first.Jobs[i],
					second.Jobs[i])
			}
		}
		raised += watched.raised
	}
	if raised == 0 {
		t.Error("no job was stopped after its estimate: the test lacks this case")
	}
}

// Without errors, a policy that sees estimates must decide as one that sees the true work. fcfs does not use the work,
// so errors must not change its runs.
func TestExactEstimatesChangeNothing(t *testing.T) {
	setup, w := generated(t, 100)
	run := func(name string, o uncertain.Options, hide bool) *scheduler.Result {
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if hide {
			p = uncertain.Hide(p, o)
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	equal := func(a, b *scheduler.Result) bool { return slices.Equal(a.Jobs, b.Jobs) }
	if !equal(run("gang", uncertain.Options{}, false), run("gang", uncertain.Options{History: true}, true)) {
		t.Error("gang without errors: got another run than with the exact work")
	}
	wrong := uncertain.Options{Seed: 1, Sigma: 1}
	if !equal(run("fcfs", uncertain.Options{}, false), run("fcfs", wrong, true)) {
		t.Error("fcfs: got another run with estimates")
	}
	if equal(run("srf", uncertain.Options{}, false), run("srf", wrong, true)) {
		t.Error("srf: got the same run with estimates as with the exact work")
	}
}

// shown is a policy that records the estimate of each job at its arrival.
type shown struct {
	scheduler.Policy
	steps []float64
}

func (p *shown) Decide(s *scheduler.State) scheduler.Action {
	for len(p.steps) < s.Arrived {
		p.steps = append(p.steps, s.Workload.Jobs[len(p.steps)].Work)
	}
	return p.Policy.Decide(s)
}

// Jobs of a kind have similar work, so the history must reduce random errors. It must also remove a drift.
func TestHistoryCorrectsEstimates(t *testing.T) {
	setup, w := generated(t, 3000)
	deviation := func(o uncertain.Options) float64 {
		p, err := scheduler.New("srf", scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		seen := &shown{Policy: p}
		if _, err := simulate.Run(uncertain.Hide(seen, o), setup.Cluster, w, setup.Speeds,
			simulate.Options{}); err != nil {
			t.Fatal(err)
		}
		squares := 0.0
		for i := 1000; i < len(w.Jobs); i++ {
			x := math.Log(seen.steps[i] / w.Jobs[i].Work)
			squares += x * x
		}
		return math.Sqrt(squares / float64(len(w.Jobs)-1000))
	}
	for _, c := range []struct {
		name string
		o    uncertain.Options
		most float64 // upper limit of: deviation with history / stated deviation
	}{
		// The work of a kind has a deviation of 0.6 to 1. The best combination with an estimate whose error is 1
		// therefore has a deviation of 0.51 to 0.71.
		{"random errors", uncertain.Options{Seed: 1, Sigma: 1}, 0.8},
		{"drift", uncertain.Options{Seed: 1, Drift: 1}, 0.2},
		{"both", uncertain.Options{Seed: 1, Sigma: 0.5, Drift: 1}, 0.8},
	} {
		stated := deviation(c.o)
		c.o.History = true
		learnt := deviation(c.o)
		t.Logf("%s: deviation of the logarithm of the errors: stated %.3f, with history %.3f", c.name, stated, learnt)
		if !(learnt <= c.most*stated) {
			t.Errorf("%s: got a deviation of %v with history and %v without, want at most %v times", c.name, learnt,
				stated, c.most)
		}
	}
}

// whole hides the journal from a policy, which then reads the whole state at each decision.
type whole struct{ scheduler.Policy }

func (p whole) Decide(s *scheduler.State) scheduler.Action {
	view := *s
	view.Journal = nil
	return p.Policy.Decide(&view)
}

// The estimate of a running job doubles if the job exceeds it. A policy with a journal must see each of these changes,
// as a policy without a journal does.
func TestJournalHasDoubledEstimates(t *testing.T) {
	setup, w := generated(t, 150)
	o := uncertain.Options{Seed: 1, Sigma: 1.5, History: true}
	changes := []simulate.Change{{At: 2000, GPU: 0}, {At: 9000, GPU: 0, Up: true}}
	for _, name := range scheduler.Names() {
		run := func(hide func(scheduler.Policy) scheduler.Policy) *scheduler.Result {
			p, err := scheduler.New(name, scheduler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := simulate.Run(uncertain.Hide(hide(p), o), setup.Cluster, w, setup.Speeds,
				simulate.Options{Changes: changes, Checkpoint: 300})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r
		}
		with := run(func(p scheduler.Policy) scheduler.Policy { return p })
		without := run(func(p scheduler.Policy) scheduler.Policy { return whole{p} })
		for i := range with.Jobs {
			if with.Jobs[i] != without.Jobs[i] {
				t.Fatalf("%s: job %d: got %+v with a journal, want %+v", name, i, with.Jobs[i], without.Jobs[i])
			}
		}
	}
}

// With estimates that equal the work, a policy must make the same decisions as without estimates, at the same times.
func TestEstimatesThatEqualTheWork(t *testing.T) {
	setup, w := generated(t, 150)
	stated := *w
	stated.Jobs = slices.Clone(w.Jobs)
	for i := range stated.Jobs {
		stated.Jobs[i].Estimate = stated.Jobs[i].Work
	}
	for _, name := range scheduler.Names() {
		run := func(w *scheduler.Workload, hide bool) *scheduler.Result {
			p, err := scheduler.New(name, scheduler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if hide {
				p = uncertain.Hide(p, uncertain.Options{})
			}
			r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r
		}
		plain, hidden := run(w, false), run(&stated, true)
		if !slices.Equal(plain.Jobs, hidden.Jobs) {
			t.Errorf("%s: got another schedule than with the exact work", name)
		}
	}
}
