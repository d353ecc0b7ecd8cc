package simulate_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// proportionalTo returns a curve with a constant speed in samples/s, up to a batch of 256.
func proportionalTo(speed float64) divide.Curve {
	return divide.Curve{{Samples: 1, Seconds: 1 / speed}, {Samples: 256, Seconds: 256 / speed}}
}

func TestRunRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(o *simulate.Options)
		want   string
	}{
		{"no curves", func(o *simulate.Options) { o.Curves = nil }, "simulate: no curves"},
		{"an empty curve", func(o *simulate.Options) { o.Curves = []divide.Curve{proportionalTo(1), nil} },
			"simulate: rank 1: got a curve without points"},
		{"times of 0", func(o *simulate.Options) { o.Curves = []divide.Curve{{{Samples: 1, Seconds: 0}}} },
			"simulate: rank 0: point 0: got 0 s, want 1e-09"},
		{"negative noise", func(o *simulate.Options) { o.Noise = -1 }, "simulate: noise: got -1, want 0 to 10"},
		{"noise of NaN", func(o *simulate.Options) { o.Noise = math.NaN() }, "simulate: noise: got NaN, want 0 to 10"},
		{"no steps", func(o *simulate.Options) { o.Steps = 0 }, "simulate: got 0 steps, want 1 to 100000000"},
		{"no interval", func(o *simulate.Options) { o.Interval = 0 },
			"policy hybrid: interval: got 0 steps, want at least 1"},
		{"a policy that is none", func(o *simulate.Options) { o.Policy = "best" },
			`policy: got "best", want none, proportional, dynamic, hybrid`},
		{"a batch beyond the curves", func(o *simulate.Options) { o.Total = 600 },
			"88 of 600 samples do not fit: the ranks can hold 256, 256"},
		{"a drift of 0", func(o *simulate.Options) { o.Drift = func(int, int) float64 { return 0 } },
			"simulate: step 0: drift of rank 0: got 0, want a finite number above 0"},
	}
	for _, test := range tests {
		o := simulate.Options{Policy: "hybrid", Total: 256,
			Curves: []divide.Curve{proportionalTo(100), proportionalTo(200)}, Steps: 10, Interval: 10}
		test.change(&o)
		if _, err := simulate.Run(o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

func TestRunIsDeterministic(t *testing.T) {
	for _, policy := range policies.Names() {
		o := simulate.Options{Policy: policy, Total: 300, Curves: []divide.Curve{proportionalTo(100),
			proportionalTo(200), proportionalTo(300)}, Noise: 0.1, Steps: 300, Interval: 10, Seed: 3}
		first := played(t, o)
		again, _ := simulate.Run(o)
		if !reflect.DeepEqual(first, again) {
			t.Errorf("%s: equal options gave shares %v and %v", policy, first.Shares, again.Shares)
		}
		o.Seed++
		if other, _ := simulate.Run(o); policy == "hybrid" && reflect.DeepEqual(first.Track, other.Track) {
			t.Errorf("%s: another seed changed nothing", policy)
		}
	}
}

func TestRunReportsWhatHappened(t *testing.T) {
	curves := []divide.Curve{proportionalTo(100), proportionalTo(300)}
	r := played(t, simulate.Options{Policy: "none", Total: 200, Curves: curves, Steps: 25, Interval: 10})
	// Equal shares take 1 s. The best shares are 50 and 150, and take 0.5 s.
	if !slices.Equal(r.Shares, []int{100, 100}) || math.Abs(r.StepSeconds-1) > 1e-9 ||
		math.Abs(r.OracleSeconds-0.5) > 1e-9 || math.Abs(r.ShareOfOracle-0.5) > 1e-9 || r.Rebalances != 0 ||
		len(r.History) != 0 || len(r.Track) != 25 {
		t.Errorf("policy none: got %+v", r)
	}
	r = played(t, simulate.Options{Policy: "hybrid", Total: 200, Curves: curves, Steps: 100, Interval: 10})
	if r.ShareOfOracle < 0.99 || r.Rebalances != len(r.History) || r.History[0].Step != 1 ||
		!slices.Equal(r.History[len(r.History)-1].Shares, r.Shares) {
		t.Errorf("policy hybrid: got %+v", r)
	}
	for step, share := range r.Track {
		shares := []int{100, 100}
		for _, h := range r.History {
			if h.Step <= step {
				shares = h.Shares
			}
		}
		if now, _ := divide.Slowest(curves, shares); math.Abs(share-0.5/now) > 1e-9 {
			t.Errorf("step %d: fraction of the oracle %v, want %v with shares %v", step, share, 0.5/now, shares)
		}
	}
}

func TestRunFollowsDrift(t *testing.T) {
	// From step 200 to step 400, rank 1 has half its speed.
	drift := func(rank, step int) float64 {
		if rank == 1 && step >= 200 && step < 400 {
			return 2
		}
		return 1
	}
	o := simulate.Options{Policy: "hybrid", Total: 200, Curves: []divide.Curve{
		proportionalTo(100), proportionalTo(300)}, Noise: 0.01, Steps: 600, Interval: 10, Seed: 1, Drift: drift}
	r := played(t, o)
	for _, want := range []struct {
		from, to    int
		least, most float64 // limits of the fraction of the oracle
	}{{0, 1, 0.49, 0.51}, {100, 200, 0.98, 1}, {200, 201, 0.75, 0.85}, {240, 400, 0.97, 1}, {400, 401, 0.6, 0.65},
		{440, 600, 0.97, 1}} {
		for step := want.from; step < want.to; step++ {
			if share := r.Track[step]; share < want.least || share > want.most+1e-9 {
				t.Errorf("step %d: fraction of the oracle %v, want %v to %v", step, share, want.least, want.most)
			}
		}
	}
	if math.Abs(r.OracleSeconds-0.5) > 1e-9 {
		t.Errorf("at the end the oracle takes %v s, want 0.5", r.OracleSeconds)
	}
}

func TestRunTellsThePolicyWhatAProfileWould(t *testing.T) {
	curves := []divide.Curve{proportionalTo(100), proportionalTo(300)}
	r, err := simulate.Run(simulate.Options{Policy: "hybrid", Total: 200, Curves: curves, Steps: 1, Interval: 10,
		Knows: func(o *balancer.Options) { o.Curves = curves }})
	if err != nil || !slices.Equal(r.Shares, []int{50, 150}) || r.Track[0] < 1-1e-9 {
		t.Errorf("with known curves got %+v, %v, want 50 and 150 samples at once", r, err)
	}
}
