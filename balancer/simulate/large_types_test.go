package simulate_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// largeTypes makes 240 ranks of three types. spread is the standard deviation of the logs of the ranks' levels within a
// type. If slowed is set, some ranks are slower by a factor of 1.5, and others become slower temporarily.
func largeTypes(seed uint64, spread float64, slowed bool) simulate.Options {
	const ranks = 240
	r := rand.New(rand.NewPCG(seed, 83))
	curves, types := make([]divide.Curve, ranks), make([]string, ranks)
	for i := range curves {
		perSample := []float64{0.001, 0.0017, 0.003}[i%3]
		level := math.Exp(spread * r.NormFloat64())
		if slowed && i%20 == 0 {
			level *= 1.5
		}
		curves[i] = points(256, func(b float64) float64 { return level * (0.01 + perSample*b) })
		types[i] = strconv.Itoa(i % 3)
	}
	o := simulate.Options{Policy: "hybrid", Total: 32 * ranks, Curves: curves, Noise: 0.05, Steps: 600, Interval: 10,
		Seed: seed, Knows: func(o *balancer.Options) { o.Types = types }}
	if slowed {
		o.Drift = func(rank, step int) float64 {
			if rank%17 == 3 && step > 300 && step < 500 {
				return 1.6
			}
			return 1
		}
	}
	return o
}

// The ranks of a large type share one curve. The policy must still estimate the level of each rank. Its intervals must
// contain the truth about as often as with small types, also if all levels are equal. The intervals must also be
// narrow, because an interval from 0 to 1 would always contain the truth.
//
// The limits hold for 3 and for 20 seeds. Over 20 seeds, the intervals contain the truth in 91 % of the windows with
// different levels, and in 96 % with equal levels. With a few slow ranks, the intervals of 90 % contain the truth in
// only 68 % of the windows. They are too narrow, and the last row only checks that this does not become worse. Its
// gains are covered in 94 % of the windows over 20 seeds, and in 79 % over the first three.
func TestIntervalsOfLargeTypesCoverTheTruth(t *testing.T) {
	runs := seeds(3, 20)
	for _, test := range []struct {
		spread, last, near, covered, width, gains float64
		slowed                                    bool
	}{
		{0.1, 0.99, 95, 85, 0.01, 80, false},
		{0, 0.999, 95, 90, 0.004, 79, false},
		{0, 0.99, 90, 52, 0.01, 75, true},
	} {
		var c calibration
		last := 0.0
		for seed := range uint64(runs) {
			o := largeTypes(seed, test.spread, test.slowed)
			res := played(t, o)
			c.add(res.Windows, early, o.Steps)
			last += res.LastQuarterShareOfOracle / float64(runs)
		}
		near, covered := c.percent()
		gains, width := 100*float64(c.gainsCovered)/float64(c.gains), c.width/float64(c.windows)
		t.Logf("spread %v, slowed %v: last quarter at %.4f of the oracle; %.0f %% of %d windows within 2 points, "+
			"%.0f %% covered by %.4f on average (truth below %d, above %d intervals), %.0f %% of %d gains covered",
			test.spread, test.slowed, last, near, c.windows, covered, width, c.below, c.above, gains, c.gains)
		if last < test.last {
			t.Errorf("spread %v, slowed %v: got the last quarter at %.4f of the oracle, want at least %v", test.spread,
				test.slowed, last, test.last)
		}
		if covered < test.covered || near < test.near || gains < test.gains || 4*c.gains < 3*c.windows {
			t.Errorf("spread %v, slowed %v: got %.0f %% of %d windows covered, %.0f %% near, %.0f %% of %d gains "+
				"covered, want at least %v, %v and %v", test.spread, test.slowed, covered, c.windows, near, gains,
				c.gains, test.covered, test.near, test.gains)
		}
		if width > test.width {
			t.Errorf("spread %v, slowed %v: got intervals of %.4f on average, want at most %v", test.spread,
				test.slowed, width, test.width)
		}
	}
}
