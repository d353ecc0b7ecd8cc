package hybrid

import (
	"fmt"
	"math"
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
			"by batch / busy ms, this fraction would be 98 %: rank 1 took 52.0 ms in this window, and 260.0 ms on its curve"},
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
		total := 0
		for _, n := range test.shares {
			total += n
		}
		options := balancer.Options{Batch: divide.Batch{Total: total, Limits: test.limits}, Ranks: 2}
		c := chooser{opts: &options, limits: options.Capacities(2)}
		d := balancer.Decision{Shares: test.shares, Explanation: balancer.Unexplained(2)}
		d.OfOracle, d.Imbalance = test.of, test.imbalance
		curves := divide.Plain(test.curves)
		for r := range d.Ranks {
			d.Ranks[r].Seconds, d.Ranks[r].Fitted = test.busy[r], curves[r].At(float64(test.shares[r]))
		}
		oracle, err := divide.SolveScaled(options.Batch, curves)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.disagreement(&d, oracle, curves, 0); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// All ranks compute the shares in proportion to busy times with limits and units. They must be the best ones.
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
