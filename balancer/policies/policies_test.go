package policies_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

func TestNewRefuses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	line := divide.Curve{{Samples: 1, Seconds: 1}, {Samples: 2, Seconds: 2}}
	tests := []struct {
		name       string
		change     func(o *balancer.Options)
		infeasible bool
		want       string
	}{
		{"interval 0", func(o *balancer.Options) { o.Interval = 0 }, false, "interval: got 0 steps, want at least 1"},
		{"no ranks", func(o *balancer.Options) { o.Ranks = 0 }, false, "no ranks"},
		{"no samples", func(o *balancer.Options) { o.Total = 0 }, false, "a batch of 0 samples"},
		{"negative unit", func(o *balancer.Options) { o.Unit = -1 }, false, "in units of -1"},
		{"limits of other length", func(o *balancer.Options) { o.Limits = []int{8} }, false, "got 1 limits, want 3"},
		{"a negative limit", func(o *balancer.Options) { o.Limits = []int{8, -1, 64} }, false,
			"limit of rank 1: got -1, want 0 or more"},
		{"limits that hold too little", func(o *balancer.Options) { o.Limits = []int{8, 0, 16} }, true,
			"8 of 32 samples do not fit: the ranks can hold 8, 0, 16"},
		{"limits that hold nothing", func(o *balancer.Options) { o.Limits = []int{0, 0, 0} }, true,
			"32 of 32 samples do not fit: the ranks can hold 0, 0, 0"},
		{"limits that hold too little in whole units", func(o *balancer.Options) {
			o.Unit, o.Limits = 8, []int{15, 15, 8}
		}, true,
			"8 of 32 samples do not fit: the ranks can hold 15, 15, 8"},
		{"fewer units than ranks", func(o *balancer.Options) { o.Unit = 16 }, true,
			"32 samples in units of 16, want at least one unit for each of 3 ranks"},
		{"curves of other length", func(o *balancer.Options) { o.Curves = []divide.Curve{line} }, false,
			"got 1 curves, want 3"},
		{
			"a curve with NaN", func(o *balancer.Options) {
				o.Curves = []divide.Curve{nil, {{Samples: 1, Seconds: nan}}, line}
			}, false, "curve of rank 1: point 0: got 1 samples in NaN s"},
		{"a curve with a negative time", func(o *balancer.Options) {
			o.Curves = []divide.Curve{line, line, {{Samples: 1, Seconds: -1}}}
		}, false, "curve of rank 2: point 0: got 1 samples in -1 s"},
		{"a curve that does not go on", func(o *balancer.Options) {
			o.Curves = []divide.Curve{{{Samples: 2, Seconds: 1}, {Samples: 2, Seconds: 1}}, nil, nil}
		}, false, "curve of rank 0: point 1: got 2 samples after 2"},
		{"scores of other length", func(o *balancer.Options) { o.Scores = []float64{1, 2} }, false,
			"got 2 values of score, want 3"},
		{"a score of NaN", func(o *balancer.Options) { o.Scores = []float64{1, nan, 1} }, false,
			"score of rank 1: got NaN, want a finite number above 0"},
		{"a score of 0", func(o *balancer.Options) { o.Scores = []float64{1, 1, 0} }, false,
			"score of rank 2: got 0, want a finite number above 0"},
		{"a negative score", func(o *balancer.Options) { o.Scores = []float64{-1, 1, 1} }, false,
			"score of rank 0: got -1, want a finite number above 0"},
		{"an infinite score", func(o *balancer.Options) { o.Scores = []float64{inf, 1, 1} }, false,
			"score of rank 0: got +Inf"},
		{"a power of NaN", func(o *balancer.Options) { o.Watts = []float64{1, 1, nan} }, false,
			"power of rank 2: got NaN, want a finite number of at least 0"},
		{"a negative idle power", func(o *balancer.Options) { o.IdleWatts = []float64{1, -1, 1} }, false,
			"idle power of rank 1: got -1, want a finite number of at least 0"},
		{"energy without power", func(o *balancer.Options) {
			o.Objective, o.Watts = balancer.Energy,
				[]float64{1, 1, 1}
		}, false, "got no power or price, want one value for each rank"},
		{"cost without prices", func(o *balancer.Options) { o.Objective = balancer.Cost }, false,
			"got no power or price, want one value for each rank"},
		{"slowdown of NaN", func(o *balancer.Options) { o.Slowdown = nan }, false,
			"slowdown: got NaN, want a finite number of at least 0"},
		{"endless slowdown", func(o *balancer.Options) { o.Slowdown = inf }, false,
			"slowdown: got +Inf, want a finite number of at least 0"},
		{"negative slowdown", func(o *balancer.Options) { o.Slowdown = -0.1 }, false,
			"slowdown: got -0.1, want a finite number of at least 0"},
	}
	for _, test := range tests {
		for _, policy := range policies.Names() {
			o := balancer.Options{Batch: divide.Batch{Total: 32}, Ranks: 3, Interval: 10}
			test.change(&o)
			_, err := policies.New(policy, o)
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.HasPrefix(err.Error(), "policy "+policy+": ") ||
				errors.Is(err, divide.ErrInfeasible) != test.infeasible {
				t.Errorf("%s: policy %s: got error %v, want %q in it, ErrInfeasible %v", test.name, policy, err,
					test.want, test.infeasible)
			}
		}
	}
}

func TestNewListsThePolicies(t *testing.T) {
	_, err := policies.New("fastest", balancer.Options{Batch: divide.Batch{Total: 32}, Ranks: 3, Interval: 10})
	if want := `policy: got "fastest", want none, proportional, dynamic, hybrid`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestPoliciesStart(t *testing.T) {
	line := func(secondsPerSample float64) divide.Curve {
		return divide.Curve{{Samples: 1, Seconds: secondsPerSample}, {Samples: 100, Seconds: 100 * secondsPerSample}}
	}
	scores := []float64{3, 1}
	tests := []struct {
		policy string
		o      balancer.Options
		want   []int
	}{
		{"none", balancer.Options{Scores: scores}, []int{32, 32}},
		{"proportional", balancer.Options{Scores: scores}, []int{48, 16}},
		{"proportional", balancer.Options{}, []int{32, 32}},
		{"dynamic", balancer.Options{Scores: scores}, []int{48, 16}},
		{"hybrid", balancer.Options{Scores: scores}, []int{48, 16}},
		// Measured curves take precedence over scores.
		{"hybrid", balancer.Options{Scores: scores, Curves: []divide.Curve{line(1), line(1)}}, []int{32, 32}},
		// The curve of rank 1 is missing, so the scores decide.
		{"hybrid", balancer.Options{Scores: scores, Curves: []divide.Curve{line(1), nil}}, []int{48, 16}},
		{"hybrid", balancer.Options{Batch: divide.Batch{Limits: []int{64, 0}}, Curves: []divide.Curve{line(1), nil}},
			[]int{64, 0}},
	}
	for _, test := range tests {
		test.o.Total, test.o.Ranks, test.o.Interval = 64, 2, 10
		p, err := policies.New(test.policy, test.o)
		if err != nil {
			t.Errorf("%s: %v", test.policy, err)
		} else if got := p.Start(); !slices.Equal(got, test.want) {
			t.Errorf("%s with %+v starts with %v, want %v", test.policy, test.o, got, test.want)
		}
	}
}

// TestPoliciesBearGarbage passes invalid measurements to policies. The test also delays some of the decided changes,
// and omits others.
func TestPoliciesBearGarbage(t *testing.T) {
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { bearGarbage(t, name) }) })
	}
}

func bearGarbage(t *rapid.T, name string) {
	o := drawOptions(t)
	policy, err := policies.New(name, o)
	if err != nil {
		if !errors.Is(err, divide.ErrInfeasible) {
			t.Fatal(err)
		}
		return
	}
	twin, _ := policies.New(name, o)
	benches := o.Bench && name == "hybrid"
	shares := slices.Clone(policy.Start())
	checkDivision(t, o.Batch, shares, false)
	next := shares
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "what happens") {
		case 0: // the change takes effect later
		case 1: // the caller sets other shares than the decided ones
			shares = drawDivision(t, o)
		case 2: // shares that do not divide the batch
			shares = rapid.SliceOfN(rapid.IntRange(0, o.Total), o.Ranks, o.Ranks).Draw(t, "shares")
		default:
			shares = next
		}
		s := drawStep(t, o.Ranks, shares)
		d, ok := policy.Observe(s)
		again, okAgain := twin.Observe(s)
		if ok != okAgain || fmt.Sprint(d) != fmt.Sprint(again) {
			t.Fatalf("equal inputs, unequal decisions %+v and %+v", d, again)
		}
		if !ok {
			continue
		}
		if !slices.Equal(d.Shares, shares) || d.Changed != !slices.Equal(d.Next, d.Shares) || d.Reason == "" ||
			len(d.Ranks) != o.Ranks {
			t.Fatalf("with shares %v in use got decision %+v", shares, d)
		}
		checkDivision(t, o.Batch, d.Next, benches)
		next = slices.Clone(d.Next)
	}
	if l, ok := policy.(balancer.Learner); ok {
		for rank, c := range l.Curves() {
			if c == nil {
				continue
			}
			rose, falls := false, false
			for i := 1; i < len(c); i++ {
				falls = falls || rose && c[i].Seconds < c[i-1].Seconds
				rose = rose || c[i].Seconds > c[i-1].Seconds
			}
			if err := c.Check(); err != nil || falls && name != "hybrid" { // only hybrid accepts curves that fall
				t.Fatalf("rank %d: curve %v: %v, or it falls after it has risen", rank, c, err)
			}
		}
	}
}

func drawOptions(t *rapid.T) balancer.Options {
	ranks := rapid.IntRange(1, 5).Draw(t, "ranks")
	o := balancer.Options{Ranks: ranks, Interval: rapid.IntRange(1, 4).Draw(t, "interval"),
		Batch: divide.Batch{Total: rapid.IntRange(1, 120).Draw(t, "total"), Unit: rapid.IntRange(0, 4).Draw(t, "unit")},
		Bench: rapid.Bool().Draw(t, "bench"), Slowdown: rapid.Float64Range(0, 2).Draw(t, "slowdown")}
	if rapid.Bool().Draw(t, "limited") {
		o.Limits = rapid.SliceOfN(rapid.IntRange(0, 2*o.Total), ranks, ranks).Draw(t, "limits")
	}
	values := func(name string) []float64 {
		return rapid.SliceOfN(rapid.SampledFrom([]float64{1, 2, 3.5, 100, 1e-300, 1e300}), ranks, ranks).Draw(t, name)
	}
	if rapid.Bool().Draw(t, "scored") {
		o.Scores = values("scores")
	}
	if rapid.Bool().Draw(t, "has curves") {
		o.Curves = rapid.SliceOfN(rapid.Custom(drawCurve), ranks, ranks).Draw(t, "curves")
	}
	if o.Objective = rapid.SampledFrom([]balancer.Objective{balancer.Time, balancer.Energy, balancer.Cost}).Draw(t,
		"objective"); o.Objective != balancer.Time {
		o.Watts, o.IdleWatts = values("watts"), values("idle watts")
	}
	return o
}

func drawCurve(t *rapid.T) divide.Curve {
	var c divide.Curve
	samples := 0.0
	for range rapid.IntRange(0, 20).Draw(t, "points") {
		samples += rapid.SampledFrom([]float64{0.25, 1, 1, 7, 1e-300, 1e300}).Draw(t, "further")
		if len(c) == 0 || samples > c[len(c)-1].Samples && samples < 1e308 {
			c = append(c, divide.Point{Samples: samples,
				Seconds: rapid.SampledFrom([]float64{0, 0.01, 0.5, 1, 1e-300, 1e300}).Draw(t, "seconds")})
		}
	}
	return c
}

func drawDivision(t *rapid.T, o balancer.Options) []int {
	shares, err := o.Divide(rapid.SliceOfN(rapid.Float64Range(0.01, 1), o.Ranks, o.Ranks).Draw(t, "speeds"))
	if err != nil {
		t.Fatal(err)
	}
	return shares
}

func drawStep(t *rapid.T, ranks int, shares []int) *balancer.Step {
	number := rapid.SampledFrom([]float64{0.1, 0.1, 0.2, 0.3, 0.01, 10, 0, -1, 1e300, 1.5e308, 5e-324, math.NaN(),
		math.Inf(1), math.Inf(-1)})
	list := func(name string) []float64 {
		switch rapid.IntRange(0, 7).Draw(t, "which "+name) {
		case 0:
			return nil
		case 1: // some ranks have not reported
			return rapid.SliceOfN(number, 0, ranks).Draw(t, name)
		case 2: // no rank has reported
			return slices.Repeat([]float64{math.NaN()}, ranks)
		}
		return rapid.SliceOfN(number, ranks, ranks).Draw(t, name)
	}
	return &balancer.Step{Shares: shares, Own: list("own"), Update: list("update"), Data: list("data"),
		Exposed: number.Draw(t, "exposed"), Seconds: number.Draw(t, "seconds"),
		Utilization: list("utilization"), Memory: list("memory"),
		Settling: rapid.IntRange(0, 5).Draw(t, "settling") == 0}
}

// checkDivision fails unless shares are a division of the batch as [divide.Batch] defines it. Only a policy that
// excludes ranks may give no samples to a rank that can hold samples.
func checkDivision(t *rapid.T, b divide.Batch, shares []int, benches bool) {
	t.Helper()
	unit, sum, last := max(b.Unit, 1), 0, 0
	for rank, n := range shares {
		sum += n
		if n > 0 {
			last = rank
		}
		if n < 0 || b.Limits != nil && n > b.Limits[rank] {
			t.Fatalf("%+v: shares %v: rank %d is over its limit", b, shares, rank)
		}
		if n == 0 && !benches && (b.Limits == nil || b.Limits[rank] >= unit) {
			t.Fatalf("%+v: shares %v: rank %d has none", b, shares, rank)
		}
	}
	if sum != b.Total {
		t.Fatalf("%+v: shares %v sum to %d", b, shares, sum)
	}
	for rank, n := range shares {
		if rank == last {
			n -= b.Total % unit
		}
		if n%unit != 0 {
			t.Fatalf("%+v: shares %v: rank %d cuts a unit", b, shares, rank)
		}
	}
}

func TestTheOpeningIsTheFirstDecision(t *testing.T) {
	for _, policy := range policies.Names() {
		for _, scores := range [][]float64{nil, {3, 1}} {
			for _, interval := range []int{1, 2, 3, 10} {
				o := balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2, Interval: interval, Scores: scores}
				p, err := policies.New(policy, o)
				if err != nil {
					t.Fatal(err)
				}
				want, moves := balancer.Opening(p, interval), policy == "dynamic" || policy == "hybrid"
				shares := p.Start()
				for step := 1; step <= 4*interval; step++ {
					_, decided := p.Observe(&balancer.Step{Shares: shares, Own: []float64{
						float64(shares[0]), 3 * float64(shares[1])}, Update: []float64{1, 1}, Seconds: 100})
					if !decided {
						continue
					}
					if moves && want != step || !moves && want != 0 {
						t.Errorf("%s, scores %v, interval %d: decides after step %d, want %d", policy, scores, interval,
							step, want)
					}
					break
				}
			}
		}
	}
}

func TestPoliciesAreTheCallersToKeep(t *testing.T) {
	first := policies.Names()
	first[0] = "changed"
	if got, want := policies.Names(), []string{"none", "proportional", "dynamic", "hybrid"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTraitsStateTheBehaviour(t *testing.T) {
	curve := divide.Curve{{Samples: 1, Seconds: 0.1}, {Samples: 32, Seconds: 3.2}}
	for _, m := range policies.Makers() {
		o := balancer.Options{Batch: divide.Batch{Total: 32}, Ranks: 2, Interval: 10}
		start := func(o balancer.Options) (balancer.Policy, []int) {
			p, err := m.Make(o)
			if err != nil {
				t.Fatal(err)
			}
			return p, p.Start()
		}
		p, equal := start(o)
		if static := balancer.Opening(p, o.Interval) == 0; static != m.Static {
			t.Errorf("policy %s: Static is %v, but the policy changes shares: %v", m.Name, m.Static, !static)
		}
		if _, learns := p.(balancer.Learner); learns != m.Learns {
			t.Errorf("policy %s: Learns is %v, but it implements Learner: %v", m.Name, m.Learns, learns)
		}
		scored := o
		scored.Scores = []float64{3, 1}
		if _, shares := start(scored); slices.Equal(shares, equal) != m.Scoreless {
			t.Errorf("policy %s: Scoreless is %v, but starts with %v for scores, %v without", m.Name, m.Scoreless,
				shares, equal)
		}
		known := o
		known.Curves = []divide.Curve{curve, {{Samples: 1, Seconds: 0.3}, {Samples: 32, Seconds: 9.6}}}
		if _, shares := start(known); slices.Equal(shares, equal) == m.Learns {
			t.Errorf("policy %s: Learns is %v, but starts with %v for curves, %v without", m.Name, m.Learns, shares,
				equal)
		}
		if warns := m.WithoutScores != ""; warns == (m.Scoreless || m.Learns) {
			t.Errorf("policy %s: WithoutScores is %q: want a text if the policy reads scores and learns no curves",
				m.Name, m.WithoutScores)
		}
	}
}
