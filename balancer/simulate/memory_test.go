package simulate

import (
	"runtime"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// allocatedPerRank returns the bytes that a simulation allocates per rank and step, and the live memory per rank at its
// end.
func allocatedPerRank(t *testing.T, ranks, steps int) (bytes, live float64) {
	t.Helper()
	curves := make([]divide.Curve, ranks)
	for r := range curves {
		scale := 1e-3 * float64(1+r%5)
		for _, samples := range []float64{1, 8, 32, 64} {
			curves[r] = append(curves[r], divide.Point{Samples: samples, Seconds: scale * (0.5 + samples/8)})
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var policy balancer.Policy
	_, err := Run(Options{Maker: kept(t, &policy), Total: 16 * ranks, Curves: curves, Noise: 0.05, Steps: steps,
		Interval: 10, Seed: 1, Knows: func(o *balancer.Options) { o.Types = Types(curves) }})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(ranks)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(policy)
	return bytes, float64(after.HeapAlloc-before.HeapAlloc) / float64(ranks)
}

// kept returns a maker of policy hybrid that also stores the policy in *policy.
func kept(t *testing.T, policy *balancer.Policy) balancer.Maker {
	t.Helper()
	return balancer.Maker{Name: "kept", New: func(o balancer.Options) (balancer.Policy, error) {
		p, err := (&Options{Policy: "hybrid"}).policy(o)
		*policy = p
		return p, err
	}}
}

// The memory of a simulation is linear in the number of ranks (docs/balancing.md). The limits are twice the values with
// 4,000 ranks. With 500 ranks, the policy stores a fifth less for each rank, because it knows fewer shares of other
// ranks.
func TestMemoryOfManyRanksIsLinear(t *testing.T) {
	_, few := allocatedPerRank(t, 500, 40)
	bytes, many := allocatedPerRank(t, 4000, 40)
	t.Logf("%.0f bytes allocated a rank; live: %.0f bytes a rank with 4,000 ranks, %.0f with 500", bytes, many, few)
	if bytes > 240_000 || many > 12_000 || many > 1.5*few {
		t.Errorf("got %.0f bytes allocated a rank and %.0f live, want at most 240,000, and 12,000 or 1.5 times %.0f",
			bytes, many, few)
	}
}
