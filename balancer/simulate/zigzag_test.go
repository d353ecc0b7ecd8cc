package simulate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// zigzag makes a cluster of ranks with tiles. With shares that do not fill the tiles, a rank is slower by 10 to 60 %.
// If alike is set, all ranks have the same tiles.
func zigzag(seed uint64, alike bool, noise float64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, 19))
	ranks := 2 + r.IntN(5)
	total := ranks * (16 + r.IntN(81))
	curves, types := make([]divide.Curve, ranks), make([]string, ranks)
	period, step := float64(int(4)<<r.IntN(4)), 0.1+0.5*r.Float64()
	for i := range curves {
		if !alike {
			types[i] = fmt.Sprint(i)
			period, step = float64(int(4)<<r.IntN(4)), 0.1+0.5*r.Float64()
		}
		fixed, slope := 0.002+0.01*r.Float64(), 0.001*math.Exp(0.5*r.NormFloat64())
		for b := 1.0; b <= float64(total); b++ {
			seconds := fixed + slope*b
			if math.Mod(b, period) != 0 {
				seconds *= 1 + step
			}
			curves[i] = append(curves[i], divide.Point{Samples: b, Seconds: seconds})
		}
	}
	return simulate.Options{Policy: "hybrid", Total: total, Curves: curves, Noise: noise, Steps: 400, Interval: 10,
		Seed:  seed,
		Knows: func(o *balancer.Options) { o.Types = types }}
}

// zigzags stores the runs of policy hybrid on clusters of [zigzag], because two tests check the same runs.
var zigzags = map[string]*simulate.Result{}

// playedZigzag returns the run of policy hybrid on a cluster of [zigzag].
func playedZigzag(t *testing.T, seed uint64, alike bool, noise float64) *simulate.Result {
	t.Helper()
	key := fmt.Sprint(seed, alike, noise)
	if zigzags[key] == nil {
		zigzags[key] = played(t, zigzag(seed, alike, noise))
	}
	return zigzags[key]
}

// spread makes a run of 100 steps without prior knowledge. The speeds of the ranks are exp(N(0,1)). A part of their
// times does not depend on the share.
func spread(seed uint64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, 100))
	ranks := 2 + r.IntN(7)
	curves := make([]divide.Curve, ranks)
	for i := range curves {
		fixed, slope := 0.005*r.Float64(), 0.001*math.Exp(r.NormFloat64())
		curves[i] = points(64*ranks, func(b float64) float64 { return fixed + slope*b })
	}
	return simulate.Options{Policy: "hybrid", Total: 64 * ranks, Curves: curves, Noise: 0.05, Steps: 100, Interval: 10,
		Seed: seed}
}

// measuredCluster makes a cluster of measured GPUs whose types the policy knows. Equal shares are between 4 samples and
// 75 % of the capacity of a rank.
func measuredCluster(gpus map[string]divide.Curve, seed uint64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, 4))
	var curves []divide.Curve
	var types []string
	capacity := 0.0
	for range 2 + r.IntN(7) {
		kind := []string{"k80", "p100", "v100"}[r.IntN(3)]
		c := gpus[kind]
		curves, types, capacity = append(curves, c), append(types, kind), capacity+c[len(c)-1].Samples
	}
	least := 4 * float64(len(curves))
	total := int(least + (0.75*capacity-least)*r.Float64())
	return simulate.Options{Policy: "hybrid", Total: total, Curves: curves, Noise: 0.05, Steps: 200, Interval: 10,
		Seed:  seed,
		Knows: func(o *balancer.Options) { o.Types = types }}
}

func below(shares []float64, limit float64) int {
	at, _ := slices.BinarySearch(shares, limit)
	return at
}

// lost returns the time that a run lost, in steps of the oracle.
func lost(res *simulate.Result) (steps float64) {
	for _, share := range res.Track {
		steps += 1/share - 1
	}
	return steps
}

// Without -simulate.full, each kind has 20 clusters. With it, each kind has the 400 clusters of
// docs/benchmarks/balancing.md.
func TestHybridFindsSharesThatFillTiles(t *testing.T) {
	seeds := seeds(20, 400)
	for _, test := range []struct {
		noise   float64
		alike   bool
		promise promise
	}{
		{0.05, true, promise{median: 0.995, worst: 0.85, low: 0.05, deepest: 0.01}},
		{0.05, false, promise{median: 0.995, worst: 0.85, low: 0.07, deepest: 0.01}},
		// The mean of 10 steps has a standard error of 6 %, as much as the smallest steps of the curves.
		{0.2, true, promise{median: 0.98, worst: 0.80, low: 0.25, deepest: 0.01}},
		{0.2, false, promise{median: 0.98, worst: 0.80, low: 0.25, deepest: 0.01}},
	} {
		endingsOf(seeds, func(seed uint64) *simulate.Result { return playedZigzag(t, seed, test.alike, test.noise) }).
			check(t, fmt.Sprintf("zigzag curves, one type: %v, %.0f %% noise", test.alike, 100*test.noise),
				test.promise)
	}
}

// A rank of a measured kind takes equally long for 1 to 16 samples, and less time for 32. With two faster ranks, its
// share is small, so no nearby share is faster.
func TestHybridFindsAFallFarFromItsShares(t *testing.T) {
	falls := divide.Curve{{Samples: 1, Seconds: 0.21}, {Samples: 16, Seconds: 0.21}, {Samples: 32, Seconds: 0.14},
		{Samples: 64, Seconds: 0.142}, {Samples: 128, Seconds: 0.55}}
	rises := divide.Curve{{Samples: 16, Seconds: 0.028}, {Samples: 64, Seconds: 0.043}, {Samples: 128, Seconds: 0.07},
		{Samples: 256, Seconds: 0.12}}
	found := 0
	const seeds = 20
	for seed := range uint64(seeds) {
		res := played(t, simulate.Options{Policy: "hybrid", Total: 45,
			Curves: []divide.Curve{falls, rises, rises}, Noise: 0.05, Steps: 200, Interval: 10, Seed: seed})
		if res.LastQuarterShareOfOracle > 0.95 {
			found++
		}
	}
	t.Logf("%d of %d runs find the fall", found, seeds)
	if found < seeds*3/4 {
		t.Errorf("got %d of %d runs that find the fall, want three of four", found, seeds)
	}
}

// lostAtStart returns the steps that each of n runs of 100 steps loses, in ascending order.
func lostAtStart(t *testing.T, n int, cluster func(seed uint64) simulate.Options) []float64 {
	t.Helper()
	var early []float64
	for seed := range uint64(n) {
		res := played(t, cluster(seed))
		early = append(early, lost(res))
	}
	slices.Sort(early)
	return early
}

// The policy loses 4.1 steps (median) and 11.4 (90th percentile). With a first window of 3 steps and later windows of
// 10 steps, it lost 9.7 and 57.6.
func TestHybridLosesLittleAtTheStart(t *testing.T) {
	seeds := seeds(60, 200)
	early := lostAtStart(t, seeds, spread)
	median, most := early[seeds/2], early[9*seeds/10]
	t.Logf("steps lost in the first 100: median %.1f, 90th percentile %.1f", median, most)
	if median > 6 || most > 20 {
		t.Errorf(
			"got a median of %.1f and a 90th percentile of %.1f steps lost in the first 100, want at most 6 and 20",
			median, most)
	}
}

// Ranks of one type share their measurements: if one K80 finds a fast share, the others use it. If the policy does not
// know the types, runs must lose more steps.
func TestRanksOfOneTypeShareWhatTheyLearn(t *testing.T) {
	gpus := measuredGPUs(t)["ResNet-18"]
	var low [2]int
	var steps [2]float64 // steps lost
	for i, told := range []bool{false, true} {
		for seed := range uint64(60) {
			o := measuredCluster(gpus, 7000+seed)
			if !told {
				o.Knows = nil
			}
			res := played(t, o)
			steps[i] += lost(res)
			if lastQuarter(res) < 0.98 {
				low[i]++
			}
		}
	}
	t.Logf("60 runs without types and with them: %v below 0.98, %.0f steps lost", low, steps)
	if steps[1] >= steps[0] || low[1] > 3 {
		t.Errorf("got %.0f steps lost without types and %.0f with them, want fewer; got %d of 60 runs below 0.98 with types, want at most 3",
			steps[0], steps[1], low[1])
	}
}

// A probe in the last window of a run costs time, and no later step can profit from it. If the policy does not know the
// last step, it must make such probes; otherwise the test could not fail.
func TestHybridMakesNoProbeThatCannotPay(t *testing.T) {
	unknown := 0
	for seed := range uint64(seeds(30, 120)) {
		r := rand.New(rand.NewPCG(seed, 0))
		curves := make([]divide.Curve, 2+r.IntN(7))
		for i := range curves {
			curves[i] = families[0].curve(r, 64*len(curves))
		}
		last := 130 + 10*int(seed%4)
		o := simulate.Options{Policy: "hybrid", Total: 64 * len(curves), Curves: curves, Noise: 0.05, Steps: last + 10,
			Interval: 10, Seed: seed}
		for _, o.EndUnknown = range []bool{false, true} {
			res := played(t, o)
			for _, h := range res.History {
				if h.Step < last || !strings.HasPrefix(h.Reason, "a probe") {
					continue
				}
				if unknown++; !o.EndUnknown {
					t.Errorf("seed %d: after step %d of %d a probe of %v: want none", seed, h.Step, o.Steps, h.Shares)
				}
			}
		}
	}
	if unknown == 0 {
		t.Error("no probe in the last 10 steps of runs whose end is unknown: want some")
	}
}
