package simulate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// bursts makes two ranks with speeds 4 : 1 and steps of some ms on a machine with other work. Bursts of this work make
// one rank or both several times slower, for some steps or some windows. A burst may begin and end within a window.
// calm is the mean number of steps between two bursts; 0: no bursts. After a mean of `clocks` steps, the clock of a
// rank becomes 10 % slower, or returns to its normal value; 0: clocks are constant. slow reports whether a step is in a
// burst.
func bursts(seed uint64, calm, clocks float64) (o simulate.Options, slow func(step int) bool) {
	const steps = 400
	r := rand.New(rand.NewPCG(seed, 0xb0b))
	var curves []divide.Curve
	for _, speed := range []float64{4, 1} {
		fixed, slope := 0.0002+0.0004*r.Float64(), 0.0002/speed*math.Exp(0.1*r.NormFloat64())
		curves = append(curves, points(256, func(b float64) float64 { return fixed + slope*b }))
	}
	factors := [2][]float64{slices.Repeat([]float64{1}, steps), slices.Repeat([]float64{1}, steps)}
	for step := int(calm * r.ExpFloat64() / 2); step < steps && calm > 0; {
		length, who := 1+int(15*r.ExpFloat64()), r.IntN(4)
		factor := [2]float64{math.Exp(1 + 1.3*r.Float64()), math.Exp(1 + 1.3*r.Float64())}
		for i := step; i < min(step+length, steps); i++ {
			for rank := range factors {
				if who >= 2 || who == rank {
					factors[rank][i] = factor[rank]
				}
			}
		}
		step += length + 1 + int(calm*r.ExpFloat64())
	}
	clock := [2][]float64{slices.Repeat([]float64{1}, steps), slices.Repeat([]float64{1}, steps)}
	random := rand.New(rand.NewPCG(seed, 0xc10c))
	for rank, c := range clock {
		now, next := 1.0, clocks*random.ExpFloat64()
		for step := range c {
			for clocks > 0 && next < float64(step) {
				now, next = 2.1-now, next+clocks*random.ExpFloat64()
			}
			clock[rank][step] = now
		}
	}
	return simulate.Options{Policy: "hybrid", Total: 64, Curves: curves, Noise: 0.08, Steps: steps, Interval: 10,
			Seed: seed,
			Knows: func(o *balancer.Options) {
				o.Scores = []float64{4 * math.Exp(r.NormFloat64()), 1}
			},
			Drift: func(rank, step int) float64 { return factors[rank][step] * clock[rank][step] }},
		func(step int) bool { return factors[0][step] > 1 || factors[1][step] > 1 }
}

// A burst makes steps slow. The policy must not attribute these times to the shape of a curve: it would keep bad
// shares, and its narrow interval would claim that they are the best ones. If the policy still does so, the decision
// must state that the busy times of the window differ from the estimate.
// The test ignores windows and steps within bursts, and the first 30 steps.
func TestABurstIsNotTheShapeOfACurve(t *testing.T) {
	const first, far = 30, 0.25
	for _, test := range []struct {
		calm    float64
		clocks  float64
		of      float64 // least mean fraction of the oracle's speed
		falsely float64 // largest percentage of windows with the truth far below the interval
	}{{0, 0, 0.998, 0}, {400, 0, 0.985, 0.5}, {150, 0, 0.97, 1}, {60, 0, 0.94, 2}, {30, 0, 0.91, 2},
		{0, 40, 0.98, 0}, {60, 40, 0.9, 3}} {
		if !*full && (test.calm != 60 || test.clocks > 0) {
			continue
		}
		runs := seeds(60, 200)
		windows, farBelow, below, above, of, last := 0, 0, 0, 0, 0.0, 0.0
		said := 0 // number of windows that state why the estimate and the busy times differ
		for seed := range uint64(runs) {
			o, slow := bursts(seed, test.calm, test.clocks)
			res := played(t, o)
			for _, w := range res.Windows {
				if w.Step <= first || slices.ContainsFunc(stepsBefore(w.Step, o.Interval), slow) {
					continue
				}
				windows++
				if w.Disagreement != "" {
					said++
				} else if w.Truth < w.Estimate.Low-far {
					t.Errorf("seed %d: step %d: got an estimate of %.2f (%.2f to %.2f) without a word, in truth %.2f",
						seed, w.Step, w.Estimate.Value, w.Estimate.Low, w.Estimate.High, w.Truth)
				}
				switch {
				case w.Truth < w.Estimate.Low-far:
					farBelow++
					below++
				case w.Truth < w.Estimate.Low-0.01:
					below++
				case w.Truth > w.Estimate.High+0.01:
					above++
				}
			}
			sum, steps := 0.0, 0.0
			for step, share := range res.Track {
				if step >= first && !slow(step) {
					sum, steps = sum+share, steps+1
				}
			}
			of += sum / max(steps, 1) / float64(runs)
			last += res.LastQuarterShareOfOracle / float64(runs)
		}
		percent := func(n int) float64 { return 100 * float64(n) / float64(windows) }
		t.Logf("| %.0f, %.0f | %.1f %% | %.1f %% | %.1f %%, %.1f %% | %.1f %% | %.1f %% | (%d runs, %d windows)",
			test.calm, test.clocks, 100*of, 100*last, percent(below), percent(above), percent(farBelow), percent(said),
			runs, windows)
		if test.calm == 0 && test.clocks == 0 && said > 0 {
			t.Errorf("got %d windows that say that the estimate and the busy times differ, want none without bursts",
				said)
		}
		if of < test.of || percent(farBelow) > test.falsely {
			t.Errorf("%.0f steps between bursts, %.0f between changes of clocks: got %.4f of the oracle, and %.1f %% of %d windows with a truth far below the interval; want at least %v and at most %v %%",
				test.calm, test.clocks, of, percent(farBelow), windows, test.of, test.falsely)
		}
	}
}

// stepsBefore returns the numbers of the n steps of a window that ends before step end.
func stepsBefore(end, n int) []int {
	var steps []int
	for step := max(end-n, 0); step < end; step++ {
		steps = append(steps, step)
	}
	return steps
}
