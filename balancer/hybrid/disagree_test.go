package hybrid

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Figures of one window that seem to contradict each other must have an explanation, and the right one.
func TestADecisionSaysWhyItsFiguresDiffer(t *testing.T) {
	line := func(fixed, slope float64) divide.Curve {
		return divide.Curve{{Samples: 1, Seconds: fixed + slope}, {Samples: 64, Seconds: fixed + 64*slope}}
	}
	steep := divide.Curve{{Samples: 1, Seconds: 1e-4}, {Samples: 28, Seconds: 1.8e-3}, {Samples: 32, Seconds: 9e-3},
		{Samples: 64, Seconds: 20e-3}}
	sure := balancer.Fraction{Value: 1, Low: 0.984, High: 1}
	for name, test := range map[string]struct {
		curves    []divide.Curve
		limits    []int
		shares    []int
		busy      []float64 // s
		of        balancer.Fraction
		imbalance float64
		want      string
	}{
		"figures that agree": {[]divide.Curve{line(0, 1e-3), line(0, 4e-3)}, nil, []int{51, 13},
			[]float64{0.051, 0.052}, sure, 0.05, ""},
		"the shape of a curve": {[]divide.Curve{steep, line(0, 8e-3/36)}, nil, []int{28, 36}, []float64{1.8e-3, 8e-3},
			sure, 0.799,
			"by batch / busy ms, this fraction would be 40 %: with a share of 50, rank 0 takes 15.2 ms on its curve, and 3.2 ms in proportion"},
		"a slower window than the curve": {[]divide.Curve{line(0, 1e-3), line(0, 4e-3)}, nil, []int{51, 13},
			[]float64{0.051, 0.2}, sure, 0.75,
			"by batch / busy ms, this fraction would be 31 %: rank 1 took 200.0 ms in this window, and 52.0 ms on its curve"},
		"a slower curve than the window": {[]divide.Curve{line(0, 1e-3), line(0, 20e-3)}, nil, []int{51, 13},
			[]float64{0.051, 0.052}, balancer.Fraction{Value: 0.23, Low: 0.2, High: 0.3}, 0.05,
			"by batch / busy ms, this fraction would be 100 %: rank 1 took 52.0 ms in this window, and 260.0 ms on its curve"},
		"a limit": {[]divide.Curve{line(0, 1e-3), line(0, 1e-3)}, []int{8, 64}, []int{8, 56}, []float64{0.008, 0.056},
			sure, 0.86, "rank 0 is busy for 8.0 of 56.0 ms, and 8 samples are its limit"},
		"noise": {[]divide.Curve{line(0, 1e-3), line(0, 1e-3)}, nil, []int{32, 32}, []float64{0.032, 0.033}, sure, 0.4,
			"busy times vary from step to step, and their means differ by 3 %"},
		"few samples": {[]divide.Curve{line(0, 0.1e-3), line(0, 1e-3)}, []int{3, 64}, []int{2, 1},
			[]float64{0.2e-3, 1e-3}, balancer.Fraction{Value: 1, Low: 1, High: 1}, 0.8,
			"rank 0 is busy for 0.2 of 1.0 ms; by batch / busy ms, other shares would save 0.0 % of a step"},
		"an unknown fraction": {[]divide.Curve{line(0, 1e-3), line(0, 1e-3)}, nil, []int{8, 56}, []float64{0.008, 0.056},
			balancer.UnknownFraction(), 0.86, ""},
		"an unknown time": {[]divide.Curve{line(0, 1e-3), line(0, 1e-3)}, nil, []int{8, 56},
			[]float64{math.NaN(), 0.056}, sure, 0.86, ""},
		"an excluded rank": {[]divide.Curve{line(0, 1e-3), line(0, 1e-3)}, nil, []int{64, 0}, []float64{0.064, math.NaN()},
			balancer.Fraction{Value: 0.5, Low: 0.45, High: 0.55}, 0, ""},
	} {
		f := figures{curves: test.curves, limits: test.limits, shares: test.shares, busy: test.busy, own: test.busy,
			of: test.of, imbalance: test.imbalance}
		if got := f.disagreement(t); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	almost := balancer.Fraction{Value: 0.9, Low: 0.85, High: 0.95}
	for name, test := range map[string]struct {
		figures
		want string
	}{
		"updates": {figures{curves: []divide.Curve{line(0.01, 3e-5), line(0.01, 1.2e-4)}, shares: []int{32, 32},
			busy: []float64{0.011, 0.014}, own: []float64{0.001, 0.004}, of: almost, imbalance: 0.75},
			"rank 0 is busy for 11.0 of 14.0 ms, without the update for 1.0 of 4.0 ms; by batch / busy ms, other shares would save 11.6 % of a step"},
		"noise and unequal means": {figures{curves: []divide.Curve{line(0.03, 3e-4), line(0.03, 9e-4)},
			shares: []int{32, 32}, busy: []float64{0.036, 0.06}, of: almost, imbalance: 0.85},
			"rank 0 is busy for 36.0 of 60.0 ms; by batch / busy ms, other shares would save 25.0 % of a step"},
		"a limit hides the loss of the curves": {figures{curves: []divide.Curve{line(0, 1e-3), line(0, 1e-3)},
			limits: []int{8, 64}, shares: []int{8, 56}, busy: []float64{0.008, 0.056},
			of: balancer.Fraction{Value: 0.6, Low: 0.55, High: 0.65}},
			"by batch / busy ms, this fraction would be 100 %: with a share of 56, rank 1 takes 56.0 ms on its curve, and 56.0 ms in proportion"},
		"an excluded rank and noise": {figures{curves: []divide.Curve{line(0, 1e-3), line(0, 1e-3), line(0, 1e-3)},
			shares: []int{32, 32, 0}, busy: []float64{0.032, 0.0347, math.NaN()}, of: almost, imbalance: 0.5},
			"busy times vary from step to step, and their means differ by 8 %"},
		"several slightly different windows": {figures{curves: []divide.Curve{line(0, 1e-3), line(0, 4e-3)},
			shares: []int{51, 13}, busy: []float64{0.0465, 0.057}, of: sure, imbalance: 0.2},
			"by batch / busy ms, this fraction would be 85 %: rank 1 took 57.0 ms in this window, and 52.0 ms on its curve"},
		"communication": {figures{curves: []divide.Curve{line(0, 1e-3), line(0, 4e-3)}, shares: []int{51, 13},
			busy: []float64{0.051, 0.2}, of: sure, imbalance: 0.75, exposed: 0.2},
			"by batch / busy ms, this fraction would be 65 %: rank 1 took 200.0 ms in this window, and 52.0 ms on its curve"},
	} {
		if test.own == nil {
			test.own = test.busy
		}
		if got := test.disagreement(t); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// Many equal ranks with noise always have a large imbalance, and a slowest rank. This needs no explanation; a rank that
// is three times as fast does.
func TestTheNoiseOfManyRanksIsNoDisagreement(t *testing.T) {
	const ranks, steps, noise = 1000, 10, 0.1
	random := rand.New(rand.NewPCG(1, 8))
	f := figures{shares: slices.Repeat([]int{32}, ranks), busy: make([]float64, ranks), own: make([]float64, ranks),
		steps: make([][]float64, ranks), of: balancer.Fraction{Value: 1, Low: 0.99, High: 1}}
	for range steps {
		least, most := math.Inf(1), 0.0
		for r := range f.busy {
			s := 0.032 * math.Exp(noise*random.NormFloat64())
			f.steps[r], f.busy[r] = append(f.steps[r], s), f.busy[r]+s/steps
			least, most = min(least, s), max(most, s)
		}
		f.imbalance += (most - least) / most / steps
	}
	copy(f.own, f.busy)
	for range ranks {
		f.curves = append(f.curves, divide.Curve{{Samples: 1, Seconds: 1e-3}, {Samples: 64, Seconds: 64e-3}})
	}
	if got := f.disagreement(t); got != "" || f.imbalance < 0.4 {
		t.Errorf("got %q with an imbalance of %.2f, want no text", got, f.imbalance)
	}
	f.busy[7], f.own[7] = f.busy[7]/3, f.own[7]/3
	f.imbalance = 1 - (1-f.imbalance)/3
	if got := f.disagreement(t); !strings.HasPrefix(got, "rank 7 is busy for 1") {
		t.Errorf("got %q, want a text about rank 7", got)
	}
}

// figures are those of one window.
type figures struct {
	curves    []divide.Curve
	limits    []int
	shares    []int
	busy, own []float64 // s
	of        balancer.Fraction
	imbalance float64
	exposed   float64     // s
	steps     [][]float64 // by rank: s
}

// disagreement returns the text of a decision with these figures.
func (f *figures) disagreement(t *testing.T) string {
	ranks, total := len(f.shares), 0
	for _, n := range f.shares {
		total += n
	}
	options := balancer.Options{Batch: divide.Batch{Total: total, Limits: f.limits}, Ranks: ranks}
	c := chooser{opts: &options, limits: options.Capacities(ranks)}
	d := balancer.Decision{Shares: f.shares, Explanation: balancer.Unexplained(ranks)}
	d.OfOracle, d.Imbalance = f.of, f.imbalance
	curves := divide.Plain(f.curves)
	for r := range d.Ranks {
		d.Ranks[r].Seconds, d.Ranks[r].Fitted = f.busy[r], curves[r].At(float64(f.shares[r]))
	}
	oracle, err := divide.SolveScaled(options.Batch, curves)
	if err != nil {
		t.Fatal(err)
	}
	m := measured{steps: f.steps, exposed: f.exposed}
	for _, s := range f.own {
		m.own = append(m.own, []float64{s})
	}
	return c.disagreement(&d, oracle, curves, &m)
}

// With limits and units, the shortest step in proportion to busy times must be the one of the solver.
func TestTheShortestStepInProportionIsTheSolvers(t *testing.T) {
	for _, unit := range []int{1, 4} {
		seconds := []float64{0.02, 0.05, 0.031}
		shares, limits := []int{12, 24, 24}, []int{24, 64, 20}
		o := balancer.Options{Batch: divide.Batch{Total: 60, Limits: limits, Unit: unit}, Ranks: 3}
		var lines []divide.Curve
		for r, n := range shares {
			slope := seconds[r] / float64(n)
			lines = append(lines, divide.Curve{{Samples: 1, Seconds: slope}, {Samples: 64, Seconds: 64 * slope}})
		}
		best, err := divide.Solve(o.Batch, lines)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := divide.Slowest(lines, best)
		c := chooser{opts: &o, limits: o.Capacities(3)}
		p, ok := c.inProportion(shares, func(r int) float64 { return seconds[r] }, 0)
		if got := p.whole(); !ok || math.Abs(got/want-1) > 1e-3 {
			t.Errorf("units of %d: got %v s, want %v", unit, fmt.Sprint(got), want)
		}
	}
}
