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

// largeTypes makes 240 ranks of three types. The levels of the ranks of one type have this standard deviation, log.
func largeTypes(seed uint64, spread float64) simulate.Options {
	const ranks = 240
	r := rand.New(rand.NewPCG(seed, 83))
	curves, types := make([]divide.Curve, ranks), make([]string, ranks)
	for i := range curves {
		perSample := []float64{0.001, 0.0017, 0.003}[i%3]
		level := math.Exp(spread * r.NormFloat64())
		curves[i] = points(256, func(b float64) float64 { return level * (0.01 + perSample*b) })
		types[i] = strconv.Itoa(i % 3)
	}
	return simulate.Options{Policy: "hybrid", Total: 32 * ranks, Curves: curves, Noise: 0.05, Steps: 600, Interval: 10,
		Seed: seed, Knows: func(o *balancer.Options) { o.Types = types }}
}

// The ranks of a large type share one curve. The policy must still know the level of each rank, and its intervals must
// contain the truth as often as those of small types. If the levels are equal, the intervals may lie too low, because
// the policy cannot know that they are exactly equal.
func TestIntervalsOfLargeTypesCoverTheTruth(t *testing.T) {
	for _, test := range []struct{ spread, last, covered, gains float64 }{
		{0.1, 0.99, 90, 84},
		{0, 0.999, 25, 84},
	} {
		var c calibration
		last, runs := 0.0, 2
		for seed := range uint64(runs) {
			o := largeTypes(seed, test.spread)
			res, err := simulate.Run(o)
			if err != nil {
				t.Fatal(err)
			}
			c.add(res.Windows, early, o.Steps)
			last += res.LastQuarterShareOfOracle / float64(runs)
		}
		near, covered := c.percent()
		gains := 100 * float64(c.gainsCovered) / float64(c.gains)
		t.Logf("spread %v: last quarter at %.4f of the oracle; %.0f %% of %d windows within 2 points, %.0f %% covered, "+
			"%.0f %% of %d gains covered", test.spread, last, near, c.windows, covered, gains, c.gains)
		if last < test.last {
			t.Errorf("spread %v: got the last quarter at %.4f of the oracle, want at least %v", test.spread, last,
				test.last)
		}
		if covered < test.covered || near < 95 || gains < test.gains || 4*c.gains < 3*c.windows {
			t.Errorf("spread %v: got %.0f %% of %d windows covered, %.0f %% near, %.0f %% of %d gains covered, want at "+
				"least %v, 95 and %v", test.spread, covered, c.windows, near, gains, c.gains, test.covered, test.gains)
		}
	}
}
