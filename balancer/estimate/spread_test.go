package estimate

import (
	"math/rand/v2"
	"testing"
)

// Noise hides a spread of the levels below it. The posterior must then contain equal devices, and it must be near a
// spread above the noise. Ranks of two classes differ by an error of the curve, which is no spread.
func TestTheSpreadOfLevelsIsKnownAsFarAsNoiseAllows(t *testing.T) {
	const ranks, noise = 120, 0.004
	for _, test := range []struct{ spread, least, low, most float64 }{
		// quantiles of 5 and 95 %: at least least, the lower one at most low, the upper one at most most
		{0, 0, 0.0005, noise},
		{0.02, 0.012, 0.025, 0.04},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		levels, all, shares := make([]Level, ranks), make([]int, ranks), make([]int, ranks)
		for i := range levels {
			all[i], shares[i] = i, 50+i%2
			levels[i] = Level{away: 0.01*float64(i%2) + test.spread*r.NormFloat64() + noise*r.NormFloat64(),
				variance: noise * noise, bend: 0.005 * 0.005}
		}
		d := deviceTypes{classOf: map[[2]int]int{}}
		d.classify(0, levels, all, shares)
		quantiles := d.spreadsOf(levels, all, outlying)
		low, high := quantiles[Spreads/20].Levels, quantiles[Spreads-1-Spreads/20].Levels
		t.Logf("spread %v: 90 %% from %.4f to %.4f", test.spread, low, high)
		if low < test.least || low > test.low || high > test.most || high < test.spread/1.6 { // 1.6: two values of tau
			t.Errorf("spread %v: got 90 %% of the posterior from %.4f to %.4f, want from %v…%v to %v…%v", test.spread,
				low, high, test.least, test.low, test.spread, test.most)
		}
		if len(d.classes) != 2 {
			t.Errorf("got %d classes, want one for each share", len(d.classes))
		}
	}
}
