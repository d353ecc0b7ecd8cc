package hybrid_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
)

// overloaded plays two equal ranks on a machine whose other programs slow down each rank in bursts, by up to seven
// times. It calls check after each step, with the decision or nil.
func overloaded(t *testing.T, seed uint64, check func(step int, curves []divide.Curve, s *balancer.Step,
	d *balancer.Decision)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	h := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 32}, Ranks: 2})
	shares, coming, wait := h.Start(), []int(nil), 0
	burst := make([]int, 2) // remaining steps of the burst, by rank
	for i := range 200 {
		s := &balancer.Step{Shares: slices.Clone(shares), Own: make([]float64, 2), Settling: coming != nil}
		for k, n := range shares {
			if burst[k] > 0 {
				burst[k]--
			} else if r.Float64() < 0.08 {
				burst[k] = 1 + r.IntN(12)
			}
			slower := 1.0
			if burst[k] > 0 {
				slower = 1 + 6*r.Float64()
			}
			s.Own[k] = (0.002 + 0.001*float64(n)) * slower * math.Exp(0.05*r.NormFloat64())
			s.Seconds = max(s.Seconds, s.Own[k])
		}
		d, due := h.Observe(s)
		check(i, h.(balancer.Learner).Curves(), s, d)
		if due && d.Changed {
			coming, wait = slices.Clone(d.Next), 2
		}
		if wait--; coming != nil && wait < 0 {
			shares, coming = coming, nil
		}
	}
}

// TestSharesFollowNoTimesThatARankNeverReached: no curve goes far below the shortest time per sample of any step.
// Without the bound, levels that move gave equal ranks 28 and 4 samples, for half of the shortest time per sample that
// was ever measured.
func TestSharesFollowNoTimesThatARankNeverReached(t *testing.T) {
	const reachable = 0.7 // of the shortest time per sample
	for seed := uint64(1); seed <= 40; seed++ {
		shortest, largest := []float64{math.Inf(1), math.Inf(1)}, []float64{0, 0}
		overloaded(t, seed, func(step int, curves []divide.Curve, s *balancer.Step, d *balancer.Decision) {
			for k, n := range s.Shares {
				shortest[k], largest[k] = min(shortest[k], s.Own[k]/float64(n)), max(largest[k], float64(n))
			}
			if d == nil {
				return
			}
			for k, curve := range curves {
				for b := 1.0; b <= 32; b++ {
					if least := reachable * shortest[k] * min(b, largest[k]); curve.At(b) < 0.999*least {
						t.Fatalf("seed %d, step %d: rank %d: %v s for %v samples, want at least %v", seed, step, k,
							curve.At(b), b, least)
					}
				}
			}
			if seed == 16 && step == 94 && slices.Equal(d.Next, []int{28, 4}) {
				t.Errorf("step %d: got the shares %v of %v, which need half of the shortest time per sample", step,
					d.Next, d.Shares)
			}
		})
	}
}

// A rank that becomes faster than ever gets its samples: the bound follows the fastest step.
func TestARankThatBecomesFasterGetsMoreSamples(t *testing.T) {
	factor := []float64{1, 4}
	c := newCluster(4, 0.01, func(n float64) float64 { return factor[0] * (0.002 + 0.001*n) }, func(n float64) float64 {
		return factor[1] * (0.002 + 0.001*n)
	})
	p := mustNew(t, "hybrid", balancer.Options{Batch: divide.Batch{Total: 64}, Ranks: 2})
	d := last(c.run(p, 400, func(step int, s *balancer.Step) {
		if step == 150 {
			factor[1] = 0.5
		}
	}))
	if d.Shares[1] < 40 {
		t.Errorf("a rank that is twice as fast as the other one has %v of 64 samples, want about 42", d.Shares[1])
	}
}
