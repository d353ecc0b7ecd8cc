package simulate_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// full makes the tests simulate all cases with all seeds, and print tables. Without it, they simulate a part of the
// cases.
var (
	full = flag.Bool("simulate.full", false, "every case, and print the table")
	only = flag.Int("simulate.ranks", 0, "only cases with this number of ranks")
	most = flag.Int("simulate.seeds", 20, "most seeds of a case of the table")
)

// onlyFull skips the test unless -simulate.full is set.
func onlyFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("long: hundreds of clusters; -simulate.full runs it")
	}
}

// seeds returns the number of seeds of a test: some, or all with -simulate.full.
func seeds(some, all int) int {
	if *full {
		return all
	}
	return some
}

// families make the curves of ranks. Each rank could hold the whole batch.
var families = []struct {
	name  string
	curve func(r *rand.Rand, total int) divide.Curve
}{
	{"linear", func(r *rand.Rand, total int) divide.Curve {
		// In samples/s. The factor between the 5th and the 95th of 100 ranks is 20.
		speed := 300 * math.Exp(0.8*r.NormFloat64())
		return points(total, func(b float64) float64 { return b / speed })
	}},
	{"affine", func(r *rand.Rand, total int) divide.Curve {
		speed, fixed := 300*math.Exp(0.8*r.NormFloat64()), 0.002+0.02*r.Float64()
		return points(total, func(b float64) float64 { return fixed + b/speed })
	}},
	{"stepped", func(r *rand.Rand, total int) divide.Curve { // tiles of 2 to 8 samples
		speed, tile := 300*math.Exp(0.5*r.NormFloat64()), float64(2+r.IntN(7))
		return points(total, func(b float64) float64 { return 0.003 + tile*math.Ceil(b/tile)/speed })
	}},
	{"saturating", func(r *rand.Rand, total int) divide.Curve { // the curve is flat for small batches
		speed, knee := 300*math.Exp(0.5*r.NormFloat64()), 4+20*r.Float64()
		return points(total, func(b float64) float64 { return math.Hypot(knee, b) / speed })
	}},
}

// points returns a curve with a point at every share up to 32, and at increasing distances above 32.
func points(total int, f func(float64) float64) divide.Curve {
	var c divide.Curve
	for b := 1; b < total; b += max(1, b/16) {
		c = append(c, divide.Point{Samples: float64(b), Seconds: f(float64(b))})
	}
	return append(c, divide.Point{Samples: float64(total), Seconds: f(float64(total))})
}

// outcome contains the results of many seeds.
type outcome struct {
	shares     []float64 // mean fraction of the oracle in the last quarter of the steps, ascending
	rebalances []int     // ascending
	settled    []int     // rebalances until the fraction of the oracle stays at 99 %, ascending
}

func play(t *testing.T, family, ranks, seeds int, noise float64, steps int, drift func(int, int) float64) (o outcome) {
	t.Helper()
	total := 64 * ranks
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, uint64(family)))
		curves := make([]divide.Curve, ranks)
		for i := range curves {
			curves[i] = families[family].curve(r, total)
		}
		res := played(t, simulate.Options{Policy: "hybrid", Total: total, Curves: curves, Noise: noise,
			Steps: steps, Interval: 10, Seed: seed, Drift: drift})
		settled := 0
		for i, h := range res.History {
			if h.ShareOfOracle < 0.99 {
				settled = i + 2 // earliest rebalance after which the fraction stays at 99 %
			}
		}
		o.shares, o.rebalances, o.settled = append(o.shares, lastQuarter(res)), append(o.rebalances, res.Rebalances),
			append(o.settled, settled)
	}
	slices.Sort(o.shares)
	slices.Sort(o.rebalances)
	slices.Sort(o.settled)
	return o
}

// lastQuarter is the mean fraction of the oracle in the last quarter of the steps.
func lastQuarter(res *simulate.Result) float64 {
	return res.LastQuarterShareOfOracle
}

// cases are those of TestHybridComesNearTheOracle. The slowest of many ranks is some standard errors above the mean, so
// runs with much noise need many steps. Runs with tiles need many steps, because the policy finds the tiles of the
// ranks one after another.
var cases = []struct {
	ranks int
	noise float64
	drift float64 // amplitude of the change of each rank's times, with a period of 1,000 steps
	steps int
	tiled int // steps of runs with curves of family stepped; 0: as for the other families
	seeds int // number of seeds with -simulate.full
	quick int // number of seeds without -simulate.full
}{
	{2, 0.01, 0, 400, 0, 20, 5}, {2, 0.05, 0, 800, 0, 20, 5}, {2, 0.2, 0, 6000, 0, 20, 2},
	{4, 0.01, 0, 400, 0, 20, 5}, {4, 0.05, 0, 800, 0, 20, 5}, {4, 0.2, 0, 6000, 0, 20, 0},
	{8, 0.01, 0, 400, 0, 20, 3}, {8, 0.05, 0, 800, 0, 20, 3}, {8, 0.2, 0, 6000, 0, 20, 0},
	{8, 0.01, 0.1, 4000, 0, 20, 0},
	{64, 0.01, 0, 1200, 0, 20, 1}, {64, 0.05, 0, 2400, 0, 20, 0}, {64, 0.2, 0, 12000, 0, 20, 0},
	{1000, 0.01, 0, 1200, 0, 20, 0}, {1000, 0.05, 0, 2400, 0, 20, 0}, {1000, 0.2, 0, 8000, 60000, 20, 0},
}

func TestHybridComesNearTheOracle(t *testing.T) {
	for _, c := range cases {
		seeds := c.quick
		if *full {
			seeds = min(c.seeds, *most)
		}
		if seeds == 0 || *only != 0 && c.ranks != *only {
			continue
		}
		var drift func(rank, step int) float64
		if c.drift > 0 {
			drift = func(rank, step int) float64 {
				return 1 + c.drift*math.Sin(2*math.Pi*(float64(step)/1000+0.618*float64(rank)))
			}
		}
		for f, family := range families {
			steps := c.steps
			if c.tiled > 0 && family.name == "stepped" {
				steps = c.tiled
			}
			o := play(t, f, c.ranks, seeds, c.noise, steps, drift)
			n := len(o.shares)
			// With 1,000 ranks, the limit is lower: the slowest rank is three standard errors above the mean, and a
			// share is a whole number of samples.
			median, worst := 0.99, 0.975
			if c.ranks == 1000 {
				median = 0.985
			}
			if *full {
				fmt.Printf("| %d | %.0f %% | %.0f %% | %s | %d | %.4f | %.4f | %d (%d) | %d (%d) |\n", c.ranks,
					100*c.noise, 100*c.drift, family.name, steps,
					o.shares[n/2], o.shares[0], o.rebalances[n/2], o.rebalances[n-1], o.settled[n/2], o.settled[n-1])
			}
			if o.shares[n/2] < median || o.shares[0] < worst {
				t.Errorf("%d ranks, noise %v, %s: median %.4f, worst %.4f of the oracle, want %v and %v", c.ranks,
					c.noise, family.name, o.shares[n/2], o.shares[0], median, worst)
			}
		}
	}
}

// tiled makes a cluster in which about half of the ranks have tiles. The curves of the other ranks are lines.
func tiled(ranks, tile, each int, seed uint64) simulate.Options {
	r := rand.New(rand.NewPCG(seed, uint64(ranks*1000+tile)))
	curves := make([]divide.Curve, ranks)
	for i := range curves {
		fixed, slope, own := 0.001+0.01*r.Float64(), 0.0002*math.Exp(0.7*r.NormFloat64()), float64(tile)
		if r.IntN(2) == 0 {
			own = 1
		}
		for b := 1.0; b <= float64(each*ranks); b++ {
			curves[i] = append(curves[i], divide.Point{Samples: b, Seconds: fixed + slope*own*math.Ceil(b/own)})
		}
	}
	return simulate.Options{Policy: "hybrid", Total: each * ranks, Curves: curves, Noise: 0.05, Steps: 400,
		Interval: 10, Seed: seed}
}

// GPU kernels compute tiles of many samples, and the best shares of such ranks fill the tiles. One additional sample
// may double the time of a rank, so a few runs end some percent below the oracle.
func TestHybridFillsTiles(t *testing.T) {
	leastEach, seeds := 32, 4
	if *full {
		leastEach, seeds = 16, 10
	}
	var e endings
	for _, ranks := range []int{2, 3, 4, 8} {
		for _, tile := range []int{8, 16, 32, 64} {
			for each := leastEach; each <= 64; each *= 2 {
				e.add(playAll(t, seeds, func(seed uint64) simulate.Options { return tiled(ranks, tile, each, seed) }))
			}
		}
	}
	if low := below(e.shares, 0.95); 50*low > len(e.shares) {
		t.Errorf("got %d of %d runs below 0.95 of the oracle, want at most 2 %%", low, len(e.shares))
	}
	e.check(t, "tiles", promise{median: 0.995, worst: 0.9, low: 0.1, worse: 0.01, deepest: 0.05})
}

// One type of rank takes longer for few samples than for more. Real GPUs behave so, because they use another algorithm
// for small batches. A policy that assumes rising curves would reduce the share of such a rank again and again.
func TestHybridFindsWhereACurveFalls(t *testing.T) {
	falls := divide.Curve{{Samples: 16, Seconds: 0.21}, {Samples: 32, Seconds: 0.14}, {Samples: 64, Seconds: 0.142},
		{Samples: 128, Seconds: 0.55}, {Samples: 256, Seconds: 1.13}}
	rises := divide.Curve{{Samples: 16, Seconds: 0.028}, {Samples: 64, Seconds: 0.043}, {Samples: 128, Seconds: 0.07},
		{Samples: 256, Seconds: 0.12}}
	for _, test := range []struct {
		falling, rising, total int
	}{{1, 1, 64}, {1, 1, 256}, {1, 3, 256}, {2, 2, 128}, {3, 1, 256}, {2, 6, 1024}} {
		curves := append(slices.Repeat([]divide.Curve{falls}, test.falling),
			slices.Repeat([]divide.Curve{rises}, test.rising)...)
		var shares []float64
		for seed := range uint64(seeds(8, 20)) {
			res := played(t, simulate.Options{Policy: "hybrid", Total: test.total, Curves: curves, Noise: 0.05,
				Steps: 400, Interval: 10, Seed: seed})
			shares = append(shares, lastQuarter(res))
		}
		slices.Sort(shares)
		t.Logf("%+v: median %.4f, worst %.4f", test, shares[len(shares)/2], shares[0])
		if shares[len(shares)/2] < 0.97 || shares[0] < 0.9 {
			t.Errorf("%+v: got a median of %.4f, at worst %.4f of the oracle, want 0.97 and 0.9", test,
				shares[len(shares)/2], shares[0])
		}
	}
}

// If a rank becomes slower, its times grow although the policy reduces its share, as if its curve fell. The policy must
// still follow the change, so that runs lose few steps. The loss is in steps of the oracle.
func TestHybridFollowsRanksThatBecomeSlower(t *testing.T) {
	for name, test := range map[string]struct {
		factor     func(step int) float64 // factor on the times of rank 0
		mean, most float64                // steps lost of 500
	}{
		"for good, within 100 steps": {
			func(step int) float64 { return math.Pow(6, min(max(float64(step-100)/100, 0), 1)) }, 45, 130},
		"to and fro": {
			func(step int) float64 { return math.Pow(6, 0.5-0.5*math.Cos(float64(step)/40)) }, 150, 300},
	} {
		mean, most := 0.0, 0.0
		seeds := seeds(8, 20)
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 9))
			curves := make([]divide.Curve, 4)
			for i := range curves {
				slope := 0.001 * math.Exp(0.5*r.NormFloat64())
				curves[i] = points(256, func(b float64) float64 { return 0.0005 + slope*b })
			}
			res := played(t, simulate.Options{Policy: "hybrid", Total: 256, Curves: curves, Noise: 0.01,
				Steps: 500, Interval: 10, Seed: seed, Drift: func(rank, step int) float64 {
					if rank > 0 {
						return 1
					}
					return test.factor(step)
				}})
			lost := 0.0
			for _, share := range res.Track {
				lost += 1/share - 1
			}
			mean, most = mean+lost/float64(seeds), max(most, lost)
		}
		t.Logf("%s: %.0f steps lost, at most %.0f", name, mean, most)
		if mean > test.mean || most > test.most {
			t.Errorf("%s: got %.0f steps lost, at most %.0f, want %.0f and %.0f", name, mean, most, test.mean,
				test.most)
		}
	}
}
