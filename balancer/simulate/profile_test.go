package simulate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// profiled gives a policy the content of a profile: the times of a few shares of each rank, with random errors.
func profiled(o simulate.Options, seed uint64, sigma float64) simulate.Options {
	inner := o.Knows
	o.Knows = func(k *balancer.Options) {
		if inner != nil {
			inner(k)
		}
		r := rand.New(rand.NewPCG(seed, 41))
		n, sum := float64(o.Total)/float64(len(o.Curves)), 0.0
		for _, c := range o.Curves {
			sum += n / c.At(n)
		}
		k.Curves, k.CurveErrors = nil, slices.Repeat([]float64{sigma}, len(o.Curves))
		for i, c := range o.Curves {
			shares := estimate.ProfileShares(float64(o.Total)*n/c.At(n)/sum, k.Limits[i], k.Unit)
			slices.Sort(shares)
			var points divide.Curve
			for _, s := range shares {
				points = append(points,
					divide.Point{Samples: float64(s), Seconds: c.At(float64(s)) * math.Exp(sigma*r.NormFloat64())})
			}
			k.Curves = append(k.Curves, points)
		}
	}
	return o
}

// With a profile, runs must lose few of the first 100 steps.
func TestAProfileReplacesDiscovery(t *testing.T) {
	seeds := seeds(20, 200)
	for _, test := range []struct {
		name    string
		cluster func(seed uint64) simulate.Options
		median  float64 // steps lost with a profile: upper limit
	}{
		{"lines", spread, 1.5},
		{"zigzag, one type", func(seed uint64) simulate.Options { return zigzag(seed, true, 0.05) }, 4},
		{"zigzag, each rank with its own tiles", func(seed uint64) simulate.Options {
			return zigzag(seed, false, 0.05)
		}, 6},
	} {
		unknown := func(seed uint64) simulate.Options {
			o := test.cluster(seed)
			o.Steps = 100
			return o
		}
		blind := lostAtStart(t, seeds, unknown)
		known := lostAtStart(t, seeds, func(seed uint64) simulate.Options {
			return profiled(unknown(seed), seed, 0.02)
		})
		t.Logf("%s: steps lost of 100, median and 90th percentile: blind %.1f, %.1f; with a profile %.1f, %.1f",
			test.name, blind[seeds/2], blind[9*seeds/10],
			known[seeds/2], known[9*seeds/10])
		if known[seeds/2] > test.median || 2*known[seeds/2] > blind[seeds/2] {
			t.Errorf("%s: got a median of %.1f steps lost with a profile and %.1f without, want at most %.1f and half",
				test.name, known[seeds/2], blind[seeds/2], test.median)
		}
	}
}
