package simulate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// disturbed makes a cluster of four ranks on two cores, as in scripts/lab.sh --cpu 0.8,0.4,0.2,0.2.
// Other work makes some or all ranks slower for up to 20 windows. The factor is at most 3, and changes from window to
// window.
// The disturbance begins and ends within a window, or at the boundary of two windows, where shares may change. end is
// the first step after it.
func disturbed(seed uint64) (o simulate.Options, end int) {
	r := rand.New(rand.NewPCG(seed, 0xd15))
	var curves []divide.Curve
	for _, speed := range []float64{4, 2, 1, 1} {
		fixed, slope := 0.005+0.01*r.Float64(), 0.0027/speed*math.Exp(0.05*r.NormFloat64())
		curves = append(curves, points(512, func(b float64) float64 { return fixed + slope*b }))
	}
	begin, length := 100+r.IntN(200), 5+int(200*r.Float64()*r.Float64())
	if r.IntN(2) == 0 {
		// The first window has two steps, so the others begin at 2, 12, 22 ….
		begin, length = begin/10*10+2, (length+5)/10*10
	}
	end = begin + length
	slower := make([]float64, len(curves)) // log of the factor, by rank
	for i := range slower {
		if r.IntN(2) == 0 {
			slower[i] = 0.1 + 0.8*r.Float64()
		}
	}
	if r.IntN(2) == 0 {
		for i := range slower {
			slower[i] += 0.2
		}
	}
	swing := make([][]float64, len(curves)) // log of the factor, by rank and window
	for i := range swing {
		for range 60 {
			swing[i] = append(swing[i], 0.2*r.NormFloat64())
		}
	}
	return simulate.Options{Policy: "hybrid", Total: 512, Curves: curves, Noise: []float64{0.01, 0.03, 0.05}[r.IntN(3)],
		Steps: end + 250, Interval: 10, Seed: seed,
		Knows: func(o *balancer.Options) {
			o.Scores, o.Types = []float64{2.5, 1.2, 0.56, 0.56},
				[]string{"0.8 CPUs", "0.4 CPUs", "0.2 CPUs", "0.2 CPUs"}
		},
		Drift: func(rank, step int) float64 {
			if step < begin || step >= end || slower[rank] == 0 {
				return 1
			}
			return math.Exp(max(slower[rank]+swing[rank][(step+7)/10], 0))
		}}, end
}

// A disturbance must have no lasting effect. From ten windows after its end on, the shares must be as good as without
// it.
func TestHybridRecoversFromADisturbance(t *testing.T) {
	seeds, most := seeds(30, 60), seeds(0, 1)
	var shares []float64
	low := 0
	for seed := range uint64(seeds) {
		o, end := disturbed(seed)
		res := played(t, o)
		mean := 0.0
		for _, share := range res.Track[end+100:] {
			mean += share / float64(len(res.Track)-end-100)
		}
		if shares = append(shares, mean); mean < 0.98 {
			low++
		}
	}
	slices.Sort(shares)
	t.Logf("%d disturbances: median %.4f, %d below 0.98, worst %.4f of the oracle", seeds, shares[seeds/2], low,
		shares[0])
	if shares[seeds/2] < 0.99 || low > most || shares[0] < 0.97 {
		t.Errorf("got a median of %.4f, %d of %d runs below 0.98 and a worst run of %.4f of the oracle; want 0.99, at most %d, and 0.97",
			shares[seeds/2], low, seeds, shares[0], most)
	}
}
