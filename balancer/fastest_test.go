package balancer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// overloaded plays two equal ranks on a machine whose other programs slow down each rank in bursts, by up to seven times. It
// calls check after each decision.
func overloaded(t *testing.T, seed uint64, check func(step int, h *hybrid, d *Decision)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	h := mustNew(t, "hybrid", Options{Batch: divide.Batch{Total: 32}, Ranks: 2}).(*hybrid)
	shares, coming, wait := h.Start(), []int(nil), 0
	burst := make([]int, 2) // remaining steps of the burst, by rank
	for i := range 200 {
		s := &Step{Shares: slices.Clone(shares), Own: make([]float64, 2), Settling: coming != nil}
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
		if d, due := h.Observe(s); due {
			check(i, h, d)
			if d.Changed {
				coming, wait = slices.Clone(d.Next), 2
			}
		}
		if wait--; coming != nil && wait < 0 {
			shares, coming = coming, nil
		}
	}
}

// TestSharesFollowNoTimesThatARankNeverReached: a rank gets a share only for a time per sample that it has reached, with a
// margin. Without the bound, levels that move gave equal ranks 28 and 4 samples, for half of the shortest time per sample
// that was ever measured.
func TestSharesFollowNoTimesThatARankNeverReached(t *testing.T) {
	bounded := 0
	for seed := uint64(1); seed <= 40; seed++ {
		shortest := []float64{math.Inf(1), math.Inf(1)} // of a sample of each rank in any step
		largest := []float64{0, 0}
		overloaded(t, seed, func(step int, h *hybrid, d *Decision) {
			for k, c := range h.curves {
				for _, s := range h.window.compute[k] {
					shortest[k] = min(shortest[k], s/float64(d.Shares[k]))
				}
				shortest[k] = min(shortest[k], d.Ranks[k].Seconds/float64(d.Shares[k]))
				largest[k] = max(largest[k], float64(d.Shares[k]))
				for _, curve := range []divide.Curve{c, h.sure[k]} {
					for b := 1.0; b <= 32; b++ {
						// The bound uses the fastest step, which is at most as long as the means here.
						if least := reachable * h.fastest[k].perSample * min(b, largest[k]); curve.At(b) < 0.999*least || h.fastest[k].perSample > shortest[k]*(1+1e-9) {
							t.Fatalf("seed %d, step %d: rank %d: %v s for %v samples, want at least %v; the fastest step took %v s a sample, the fastest mean %v", seed, step, k, curve.At(b), b, least,
								h.fastest[k].perSample, shortest[k])
						}
					}
				}
				if free, _ := h.ranks[k].shape.curves(h.most[k], 0); free.At(float64(d.Next[k])) < 0.999*h.curves[k].At(float64(d.Next[k])) {
					bounded++
				}
			}
			if seed == 16 && step == 94 && slices.Equal(d.Next, []int{28, 4}) {
				t.Errorf("step %d: got the shares %v of %v, which need half of the shortest time per sample", step, d.Next, d.Shares)
			}
		})
	}
	if bounded == 0 {
		t.Error("no decision needed the bound, so the test shows nothing")
	}
}

// A rank that becomes faster than ever gets its samples: the bound follows the fastest step.
func TestARankThatBecomesFasterGetsMoreSamples(t *testing.T) {
	factor := []float64{1, 4}
	c := newCluster(4, 0.01, func(n float64) float64 { return factor[0] * (0.002 + 0.001*n) }, func(n float64) float64 { return factor[1] * (0.002 + 0.001*n) })
	p := mustNew(t, "hybrid", Options{Batch: divide.Batch{Total: 64}, Ranks: 2})
	d := last(c.run(p, 400, func(step int, s *Step) {
		if step == 150 {
			factor[1] = 0.5
		}
	}))
	if d.Shares[1] < 40 {
		t.Errorf("a rank that is twice as fast as the other one has %v of 64 samples, want about 42", d.Shares[1])
	}
}

func TestABoundLeavesReachableTimes(t *testing.T) {
	c := divide.Curve{{Samples: 1, Seconds: 0.001}, {Samples: 8, Seconds: 0.1}, {Samples: 32, Seconds: 0.2}}
	if f := (fastest{}); &f.bound(c)[0] != &c[0] {
		t.Error("a rank without measurements has a bound")
	}
	f := fastest{perSample: 0.01, largest: 16}
	f.add(0, []float64{1e-9})
	f.add(8, nil)
	got := f.bound(c)
	if want := (divide.Curve{{Samples: 1, Seconds: reachable * 0.01}, {Samples: 8, Seconds: 0.1}, {Samples: 32, Seconds: 0.2}}); math.Abs(got[0].Seconds-want[0].Seconds) > 1e-12 || !slices.Equal(got[1:], want[1:]) || c[0].Seconds != 0.001 {
		t.Errorf("got %v from %v, want %v", got, c, want)
	}
	if f.add(32, []float64{0.2, 0.1, 0.3}); f.largest != 32 || f.perSample != 0.1/32 {
		t.Errorf("got %+v, want the fastest of three steps", f)
	}
}
