package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Chance must give about as many alarms in total with many ranks as with manyRanks.
func TestManyRanksGiveNoMoreFalseAlarms(t *testing.T) {
	alarms := func(sigmas float64, ranks int) float64 { return float64(ranks) * math.Erfc(sigmas/math.Sqrt2) }
	few := newPeers(manyRanks)
	if few.likely != likelySigmas || few.sure != sureSigmas || few.extreme != 0 {
		t.Errorf("%d ranks: got %+v, want the thresholds of few ranks", manyRanks, *few)
	}
	for _, ranks := range []int{1000, 100_000} {
		p := newPeers(ranks)
		for _, test := range []struct{ got, few float64 }{{p.likely, likelySigmas}, {p.sure, sureSigmas}} {
			ratio := alarms(test.got, ranks) / alarms(test.few, manyRanks)
			if ratio > 1 || ratio < 0.4 {
				t.Errorf("%d ranks: got %.3f times as many alarms beyond %.2f standard deviations as %d ranks beyond %v, "+
					"want 0.4 to 1", ranks, ratio, test.got, manyRanks, test.few)
			}
		}
	}
}

// The most extreme of many equal ranks is no outlier. A rank that differs more is one, also if it is the only one.
func TestTheMostExtremeNoiseOfManyRanksIsNoOutlier(t *testing.T) {
	const ranks, noise = 20_000, 0.06
	random := rand.New(rand.NewPCG(1, 2))
	levels, variances := make([]float64, ranks), slices.Repeat([]float64{noise * noise}, ranks)
	for i := range levels {
		levels[i] = noise * random.NormFloat64()
	}
	most := slices.Max(levels)
	at := slices.Index(levels, most)
	for _, test := range []struct {
		slower, low, high float64
	}{{most, 0, 0.2}, {math.Log(1.6), 0.9, 1}} {
		levels[at] = test.slower
		mean, spread := robustCenter(levels, variances)
		fraction, each := outliers(levels, variances, mean, spread)
		if each[at] < test.low || each[at] > test.high {
			t.Errorf("a rank at %.1f standard deviations: got an outlier with probability %.3f, want %v to %v",
				test.slower/noise, each[at], test.low, test.high)
		}
		if fraction > 3.0/ranks {
			t.Errorf("a rank at %.1f standard deviations: got %.1f outliers of all ranks, want at most 3",
				test.slower/noise, fraction*ranks)
		}
	}
}

// Few steps can show little noise by chance. The noise of equal ranks must be that of their type, and a rank that is
// clearly noisier must keep its own noise.
func TestTheNoiseOfARankMovesTowardsItsType(t *testing.T) {
	const ranks, noise = 4 * largeType, 0.05
	m := New(Options{Limits: slices.Repeat([]int{256}, ranks), Active: slices.Repeat([]bool{true}, ranks), Interval: 10,
		Types: slices.Repeat([]string{"one"}, ranks)})
	random := rand.New(rand.NewPCG(1, 2))
	for window := range 8 {
		w := &Window{Shares: slices.Repeat([]int{32}, ranks), Seconds: make([][]float64, ranks), Opening: window < 2}
		for r := range w.Seconds {
			sigma := noise
			if r == 5 {
				sigma = 6 * noise
			}
			for range 10 {
				w.Seconds[r] = append(w.Seconds[r], math.Exp(sigma*random.NormFloat64()))
			}
		}
		m.Learn(w)
		m.Fit(w.Shares, true)
	}
	var own, used []float64
	for r, e := range m.ranks {
		if r != 5 {
			own, used = append(own, math.Sqrt(e.own)), append(used, math.Sqrt(e.noise))
		}
	}
	if widest(used) > 0.5*widest(own) || math.Abs(math.Log(stat.Median(used)/noise)) > 0.1 {
		t.Errorf("got a noise of %.4f to %.4f (by the steps of each rank alone %.4f to %.4f), want nearly %v",
			slices.Min(used), slices.Max(used), slices.Min(own), slices.Max(own), noise)
	}
	if got := math.Sqrt(m.ranks[5].noise); got < 4*noise {
		t.Errorf("a rank with a noise of %v: got %.3f, want at least %v", 6*noise, got, 4*noise)
	}
}

// A rank gets a smaller share after noise made its time long, so its next time is shorter than the curve says. The
// curve of a type must not follow such ranks if the levels of its ranks are equal.
func TestTheCurveOfATypeIgnoresTheNoiseThatChoseTheShares(t *testing.T) {
	const ranks, noise = 2 * pooledRanks, 0.2
	m := New(Options{Limits: slices.Repeat([]int{256}, ranks), Active: slices.Repeat([]bool{true}, ranks), Interval: 10,
		Types: slices.Repeat([]string{"one"}, ranks)})
	random := rand.New(rand.NewPCG(1, 2))
	shares, seconds := slices.Repeat([]int{32}, ranks), make([][]float64, ranks)
	for window := range 3 {
		for r, n := range shares {
			seconds[r] = seconds[r][:0]
			for range 1 << window {
				seconds[r] = append(seconds[r], sloped(n)*math.Exp(noise*random.NormFloat64()))
			}
		}
		m.Learn(&Window{Shares: shares, Seconds: seconds, Opening: true})
		if _, missing := m.Fit(shares, true); missing >= 0 {
			t.Fatalf("window %d: rank %d has no curve", window, missing)
		}
		for r := range shares {
			if mean := stat.MeanOf(seconds[r]).Or(0); window == 0 && mean > 1.2*sloped(32) {
				shares[r] = 26
			} else if window == 0 && mean < sloped(32)/1.2 {
				shares[r] = 38
			}
		}
	}
	curve := m.types.curves[0]
	for _, samples := range []float64{26, 38} {
		want := math.Log(sloped(int(samples)) / sloped(32))
		if got := curve.log(samples) - curve.log(32); math.Abs(got-want) > 0.04 {
			t.Errorf("%v samples: got %.3f times the time of 32 samples, want %.3f", samples, stat.Exp(got),
				stat.Exp(want))
		}
	}
}
