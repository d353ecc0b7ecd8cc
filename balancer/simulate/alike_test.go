package simulate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// equalRanks makes a cluster of equal devices, for which equal shares are the best ones. If kink is set, each sample
// above the equal share takes much longer than the samples below it.
func equalRanks(seed uint64, kink bool, noise float64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, 47))
	ranks := 2 + r.IntN(5)
	share := float64(16 + r.IntN(81))
	total := share * float64(ranks)
	fixed := 0.02 * r.Float64()
	curve := points(int(total), func(b float64) float64 { return fixed + 0.001*b })
	if kink {
		// Relative changes of the time below and above the equal share.
		below, above := -0.3+0.5*r.Float64(), 1+3*r.Float64()
		curve = divide.Curve{{Samples: 1, Seconds: 0.1 * (1 - below)}, {Samples: share, Seconds: 0.1},
			{Samples: total, Seconds: 0.1 * (1 + above*float64(ranks-1))}}
	}
	o := simulate.Options{Policy: "hybrid", Total: int(total), Curves: slices.Repeat([]divide.Curve{curve}, ranks),
		Noise: noise, Steps: 400, Interval: 10, Seed: seed}
	o.Knows = func(known *balancer.Options) { known.Types = simulate.Types(o.Curves) }
	return o
}

// With equal ranks, equal shares are the best shares, so every other division of the batch costs time.
func TestEqualRanksOfOneTypeKeepEqualShares(t *testing.T) {
	for _, test := range []struct {
		name     string
		kink     bool
		noise    float64
		most     float64 // upper limit of the mean of the steps lost
		unequals int     // upper limit: runs of 40 that end more than 1 % slower than with equal shares
	}{
		// Only steps with a larger share than the equal share reveal the kink. Each of them loses up to the time of one
		// step.
		{"smooth, 5 %", false, 0.05, 1.2, 1},
		{"smooth, 20 %", false, 0.2, 6.5, 14},
		{"kink, 5 %", true, 0.05, 3.5, 3},
		{"kink, 20 %", true, 0.2, 14, 14},
	} {
		runs := seeds(20, 400)
		sum, unequal, worst := 0.0, 0, 1.0
		for seed := range uint64(runs) {
			res := played(t, equalRanks(seed, test.kink, test.noise))
			sum += lost(res)
			worst = min(worst, res.LastQuarterShareOfOracle)
			if res.LastQuarterShareOfOracle < 0.99 {
				unequal++
			}
		}
		t.Logf(
			"%s: %d runs: %.2f of 400 steps lost, %d runs end more than 1 %% slower than with equal shares, worst %.3f",
			test.name, runs, sum/float64(runs), unequal, worst)
		if sum > test.most*float64(runs) || unequal*40 > test.unequals*runs {
			t.Errorf("%s: got %.2f steps lost and %d of %d runs more than 1 %% slower than with equal shares, want at most %.1f and %d of 40",
				test.name, sum/float64(runs), unequal, runs, test.most, test.unequals)
		}
	}
}

// Above 64 samples, the time of a rank jumps by 30 %. The policy first assumes that the rank has become slower. It
// corrects this when an earlier share has its usual time. After this correction, the policy must not try the slow share
// again and again.
func TestASlowShareIsNotTriedAgainAndAgain(t *testing.T) {
	var curves []divide.Curve
	for _, f := range []float64{1, 1.2, 1.5, 2} {
		curves = append(curves, divide.Curve{{Samples: 1, Seconds: 0.01 * f}, {Samples: 64, Seconds: 0.074 * f},
			{Samples: 65, Seconds: 0.0962 * f}, {Samples: 512, Seconds: 0.5432 * f}})
	}
	most, sum := 0, 0
	for seed := range uint64(20) {
		res := played(t, simulate.Options{Policy: "hybrid", Total: 256, Curves: curves, Noise: 0.05, Steps: 600,
			Interval: 10, Seed: seed})
		slow := 0 // changes to shares that are more than 15 % slower, after step 100
		for _, h := range res.History {
			if h.Step > 100 && h.ShareOfOracle < 0.85 {
				slow++
			}
		}
		most, sum = max(most, slow), sum+slow
	}
	t.Logf("20 runs: %d changes to slow shares after step 100, most in one run %d", sum, most)
	if most > 3 || sum > 14 {
		t.Errorf("got %d changes to slow shares in 20 runs and %d in one run, want at most 14 and 3", sum, most)
	}
}
