package simulate_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// The slowest rank determines a step, so the most extreme noise of many ranks must not change the shares. A rank that
// becomes slower must still be found.
func TestNoiseOfManyRanksDoesNotChangeTheirShares(t *testing.T) {
	for _, test := range []struct {
		ranks     int
		noise     float64
		slower    float64 // factor on the times of rank 7 from step 100 on
		last, all float64 // least means of the last quarter, and of all steps
	}{
		{40, 0.05, 1, 0.995, 0.98},
		{1000, 0.05, 1, 0.995, 0.985},
		{1000, 0.2, 1, 0.97, 0.95},
		{1000, 0.05, 1.5, 0.99, 0.97},
		{1000, 0.2, 1.5, 0.96, 0.93},
	} {
		runs := seeds(1, 20)
		var c calibration
		last, all := 0.0, 0.0
		for seed := range uint64(runs) {
			o := simulate.Options{Policy: "hybrid", Total: 32 * test.ranks, Noise: test.noise, Steps: 200, Interval: 10,
				Seed: seed}
			for r := range test.ranks {
				perSample := []float64{0.001, 0.0023}[r%2]
				o.Curves = append(o.Curves, divide.Curve{{Samples: 1, Seconds: 0.01 + perSample},
					{Samples: 256, Seconds: 0.01 + 256*perSample}})
			}
			types := simulate.Types(o.Curves)
			o.Knows = func(known *balancer.Options) { known.Types = types }
			if test.slower > 1 {
				o.Drift = func(rank, step int) float64 {
					if rank == 7 && step >= 100 {
						return test.slower
					}
					return 1
				}
			}
			res := played(t, o)
			c.add(res.Windows, 0, o.Steps)
			last, all = last+res.LastQuarterShareOfOracle/float64(runs), all+res.MeanShareOfOracle/float64(runs)
		}
		near, covered := c.percent()
		t.Logf("%d ranks, %.0f %% noise, one rank %v times slower from step 100 on: %.4f of the oracle, last quarter %.4f; "+
			"%.0f %% of %d windows within 2 points, %.0f %% covered", test.ranks, 100*test.noise, test.slower, all, last,
			near, c.windows, covered)
		if near < 75 {
			t.Errorf("%d ranks, noise %v, one rank %v times slower: got %.0f %% of the windows within 2 points of the truth, "+
				"want at least 75", test.ranks, test.noise, test.slower, near)
		}
		if last < test.last || all < test.all {
			t.Errorf("%d ranks, noise %v, one rank %v times slower: got %.4f of the oracle and %.4f in the last quarter, "+
				"want at least %v and %v", test.ranks, test.noise, test.slower, all, last, test.all, test.last)
		}
	}
}
