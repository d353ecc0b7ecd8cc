package hybrid

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

func TestReleaseKeepsRanksThatAreWorthTheirPrice(t *testing.T) {
	perSample := func(seconds float64) divide.Curve {
		return divide.Curve{{Samples: 1, Seconds: seconds}, {Samples: 400, Seconds: 400 * seconds}}
	}
	curves := []divide.Curve{perSample(0.001), perSample(0.001), perSample(0.004)}
	tests := []struct {
		name     string
		prices   []float64
		limits   []int
		slowdown float64
		want     []bool // released
	}{
		{"the dear and slow one", []float64{1, 1, 1}, nil, 0.5, []bool{false, false, true}},
		{"none that is cheap for its speed", []float64{1, 1, 0.1}, nil, 0.5, []bool{false, false, false}},
		{"none without slowdown", []float64{1, 1, 1}, nil, 0, []bool{false, false, false}},
		{"a fast one that costs ten times as much", []float64{10, 1, 0.1}, nil, 2, []bool{true, false, false}},
		{"none that must hold a part of the batch", []float64{1, 1, 1}, []int{40, 40, 40}, 0.5,
			[]bool{false, false, false}},
	}
	for _, test := range tests {
		c := &chooser{opts: &balancer.Options{Batch: divide.Batch{Total: 100, Limits: test.limits}, Ranks: 3,
			Watts: test.prices, Slowdown: test.slowdown, Objective: balancer.Cost, Bench: true}}
		shares, err := c.excludeCostly(c.opts.Batch, divide.Plain(curves))
		if err != nil {
			t.Fatal(err)
		}
		released := make([]bool, 3)
		for r, n := range shares {
			released[r] = n == 0
		}
		if !slices.Equal(released, test.want) {
			t.Errorf("%s: got shares %v, want released %v", test.name, shares, test.want)
		}
	}
}

func TestReleaseIsNearlyAsGoodAsTryingEverything(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		const ranks = 8
		curves, prices := make([]divide.Curve, ranks), make([]float64, ranks)
		for i := range curves {
			seconds := 0.001 * math.Exp(r.NormFloat64())
			curves[i], prices[i] = divide.Curve{{Samples: 1, Seconds: 0.01 + seconds},
				{Samples: 400, Seconds: 0.01 + 400*seconds}}, math.Exp(r.NormFloat64())
		}
		c := &chooser{opts: &balancer.Options{Batch: divide.Batch{Total: 400}, Ranks: ranks, Watts: prices, Slowdown: 1,
			Objective: balancer.Cost, Bench: true}}
		shares, err := c.excludeCostly(c.opts.Batch, divide.Plain(curves))
		if err != nil {
			t.Fatal(err)
		}
		spent := func(shares []int) float64 {
			seconds, _ := divide.Slowest(curves, shares)
			return seconds * c.price(shares)
		}
		got, least := spent(shares), math.Inf(1)
		with, _ := divide.Solve(c.opts.Batch, curves)
		shortest, _ := divide.Slowest(curves, with)
		for kept := 1; kept < 1<<ranks; kept++ {
			b := divide.Batch{Total: 400, Limits: make([]int, ranks)}
			for i := range b.Limits {
				b.Limits[i] = 400 * (kept >> i & 1)
			}
			try, err := divide.Solve(b, curves)
			if err != nil {
				t.Fatal(err)
			}
			if seconds, _ := divide.Slowest(curves, try); seconds <= 2*shortest {
				least = min(least, spent(try))
			}
		}
		if seconds, _ := divide.Slowest(curves, shares); seconds > 2*shortest || got > 1.1*least {
			// one after the other is not all at once
			t.Errorf("seed %d: %v cost %.4f and take %v s, the cheapest cost %.4f; without slowdown %v s", seed, shares,
				got, seconds, least, shortest)
		}
	}
}
